use super::*;
use wire::SessionId;
use wire::api::{Project, SessionEvent, SessionState};

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

/// A session of the operator 7.
fn session(db: &Connection, number: i64, state: SessionState) -> Result<SessionId> {
    if projects::by_slug(db, 7, "w")?.is_none() {
        let project = Project { slug: "w".into(), folder: "/w".into(), created_at_ms: 0 };
        projects::insert(db, 7, &project)?;
    }
    let project = projects::by_slug(db, 7, "w")?.unwrap();
    let row = sessions::SessionRow {
        id: SessionId::new(),
        uid: 7,
        project: project.id,
        slug: project.project.slug,
        folder: project.project.folder,
        name: number.to_string(),
        state,
        archived: false,
        labels: std::collections::BTreeMap::default(),
        source: "api".into(),
        end_on_exit: false,
        created_at_ms: number,
        ended_at_ms: None,
        seq: 0,
    };
    sessions::insert(db, &row)?;
    sessions::set_state(db, row.id, state, number)?;
    Ok(row.id)
}

#[tokio::test]
async fn a_plain_list_has_what_lives_and_the_last_ten_that_ended_or_failed() {
    use SessionState::{Ended, Failed, Idle, Paused, Running};
    let (_folder, store) = store();
    let shown = store.write(|db| {
        for number in 0..30 {
            session(db, number, if number % 3 == 0 { Failed } else { Ended })?;
        }
        for (number, state) in [(30, Idle), (31, Running), (32, Paused)] {
            session(db, number, state)?;
        }
        let mut pages = Vec::new();
        for owner in [Some(7), None, Some(8)] {
            let filter = sessions::Filter { owner, limit: 100, ..sessions::Filter::default() };
            pages.push(sessions::page(db, &filter)?.0);
        }
        Ok(pages)
    });
    let numbers = |page: &Vec<sessions::SessionRow>| {
        let mut numbers: Vec<i64> = page.iter().map(|row| row.created_at_ms).collect();
        numbers.sort_unstable();
        numbers
    };
    let shown: Vec<Vec<i64>> = shown.await.unwrap().iter().map(numbers).collect();
    let all: Vec<i64> = (20..33).collect();
    assert_eq!(shown, [all.clone(), all, Vec::new()]);
}

#[tokio::test]
async fn an_event_goes_out_as_it_would_be_written() {
    let (_folder, store) = store();
    let told = store.write(|db| {
        let id = session(db, 1, SessionState::Idle)?;
        let data = serde_json::json!({ "ü": ["\n", 1.5, null], "deep": { "a": "\"" } });
        for (run, cage) in [(None, None), (Some(wire::RunId::new()), Some(wire::CageId::new()))] {
            let (kind, at_ms) = ("test.event", 5);
            let new =
                events::NewEvent { session: id, at_ms, kind, data: &data, run, cage, source: None };
            events::append(db, &new)?;
        }
        Ok((events::after(db, id, 0, 10)?, data))
    });
    let (told, data) = told.await.unwrap();
    assert_eq!(told.len(), 2);
    for (seq, event) in (1..).zip(&told) {
        let read: SessionEvent = serde_json::from_str(&event.json).unwrap();
        assert_eq!((read.seq, event.seq, read.kind.as_str()), (seq, seq, "test.event"));
        assert_eq!((&read.data, read.run.is_some()), (&data, seq == 2));
        assert_eq!(event.json, serde_json::to_string(&read).unwrap());
        assert!(!event.json.contains('\n'), "a line of a stream");
    }
}
