use super::*;

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("mews.db")).unwrap();
    (folder, store)
}

fn count(db: &Connection) -> Result<i64> {
    Ok(db.query_row("SELECT count(*) FROM meta", [], |row| row.get(0))?)
}

fn put(db: &Connection, key: &str) -> Result<()> {
    db.execute("INSERT INTO meta (key, value) VALUES (?1, 1)", [key])?;
    Ok(())
}

#[tokio::test]
async fn a_refused_write_leaves_no_trace_and_its_neighbours_stay() {
    let (_folder, store) = store();
    let refused = async {
        store
            .write(|db| {
                put(db, "b")?;
                Err::<(), _>(WireError::new(ErrorCode::Conflict, "no").into())
            })
            .await
    };
    let (first, second, third) =
        tokio::join!(store.write(|db| put(db, "a")), refused, store.write(|db| put(db, "c")));
    assert!(first.is_ok() && third.is_ok());
    assert!(matches!(second, Err(StoreError::Denied(_))));
    assert_eq!(store.read(count).await.unwrap(), 2);
    store.close();
}

#[tokio::test]
async fn a_full_disk_degrades_and_the_first_write_that_works_mends_it() {
    let (_folder, store) = store();
    let pages = "PRAGMA max_page_count = 1";
    store.write(move |db| Ok(db.execute_batch(pages)?)).await.unwrap();
    let big = |db: &Connection| {
        db.execute("INSERT INTO meta SELECT hex(randomblob(100000)), 1", [])?;
        Ok(())
    };
    let full = store.write(big).await;
    assert!(matches!(full, Err(StoreError::Unavailable(_))), "{full:?}");
    assert_eq!(store.read(count).await.unwrap(), 0);
    store.write(|db| Ok(db.execute_batch("PRAGMA max_page_count = 100000")?)).await.unwrap();
    store.write(big).await.unwrap();
    assert!(*store.healthy().borrow());
}

#[tokio::test]
async fn every_commit_tells_those_who_wait() {
    let (_folder, store) = store();
    let mut changes = store.changes();
    changes.mark_unchanged();
    store.write(|db| put(db, "a")).await.unwrap();
    changes.changed().await.unwrap();
}
