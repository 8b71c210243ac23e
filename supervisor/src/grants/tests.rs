use super::*;

fn operator(uid: u32, is_admin: bool) -> Operator {
    let mut operator = Operator::with_groups(uid, uid, vec![5]);
    operator.is_admin = is_admin;
    operator
}

fn terms(session: SessionId) -> Terms {
    Terms { session, policy: "shell".into(), hash: "h".into() }
}

struct Table {
    folder: tempfile::TempDir,
    grants: Grants,
}

fn table() -> Table {
    let folder = tempfile::tempdir().unwrap();
    let grants = Grants::open(folder.path().to_owned()).unwrap();
    Table { folder, grants }
}

impl Table {
    fn mint(&self, cages: u32, session: SessionId) -> Minted {
        let size = (cages, 60_000);
        self.grants.mint(GrantId::new(), size, terms(session), &operator(7, false)).unwrap()
    }

    /// As the next supervisor finds it.
    fn again(&self) -> Grants {
        Grants::open(self.folder.path().to_owned()).unwrap()
    }
}

fn usable(grants: &Grants, key: &GrantKey) -> Result<(), WireError> {
    grants.opened(key)?.0.usable(clock::now_ms())
}

fn code<T>(told: Result<T, WireError>) -> ErrorCode {
    told.err().map_or(ErrorCode::Unknown, |error| error.code)
}

#[test]
fn a_grant_gives_as_many_cages_as_it_says_and_no_supervisor_forgets_one() {
    let (table, session) = (table(), SessionId::new());
    let Minted { grant, key } = table.mint(2, session);
    assert_eq!((grant.uid, grant.left()), (7, 2));
    for left in [1, 0] {
        let next = table.again();
        let (_state, operator) = next.opened(&key).unwrap();
        assert_eq!((operator.uid, operator.is_admin), (7, false));
        next.count(grant.id, CageId::new(), &terms(session)).unwrap();
        assert_eq!(table.again().list()[0].left(), left);
    }
    let last = table.again();
    assert_eq!(code(usable(&last, &key)), ErrorCode::LimitReached);
    assert_eq!(code(last.count(grant.id, CageId::new(), &terms(session))), ErrorCode::LimitReached);
}

#[test]
fn it_opens_nothing_else() {
    let (table, session) = (table(), SessionId::new());
    let Minted { grant, key } = table.mint(5, session);
    let other = table.mint(5, session);
    for wrong in [
        GrantKey { id: GrantId::new(), ..key.clone() },
        GrantKey { secret: other.key.secret, ..key.clone() },
        GrantKey { secret: "0".repeat(64), ..key.clone() },
    ] {
        assert_eq!(code(table.grants.opened(&wrong)), ErrorCode::NotFound, "{wrong:?}");
    }
    let count = |terms: &Terms| code(table.grants.count(grant.id, CageId::new(), terms));
    assert_eq!(count(&terms(SessionId::new())), ErrorCode::Forbidden);
    let wider = Terms { hash: "wider".into(), ..terms(session) };
    assert_eq!(count(&wider), ErrorCode::Forbidden);
    assert_eq!(table.grants.list()[0].used.len(), 0);
}

#[test]
fn a_revoked_one_stays_revoked_and_is_its_operators_alone() {
    let (table, session) = (table(), SessionId::new());
    let Minted { grant, key } = table.mint(5, session);
    assert_eq!(code(table.grants.revoke(grant.id, &operator(8, false))), ErrorCode::NotFound);
    usable(&table.grants, &key).unwrap();
    let revoked = table.grants.revoke(grant.id, &operator(0, true)).unwrap();
    assert!(revoked.revoked_at_ms.is_some());
    assert_eq!(table.grants.revoke(grant.id, &operator(7, false)).unwrap(), revoked);
    let next = table.again();
    assert_eq!(code(usable(&next, &key)), ErrorCode::Gone);
    assert_eq!(code(next.count(grant.id, CageId::new(), &terms(session))), ErrorCode::Gone);
}

#[test]
fn what_cannot_be_written_is_not_given() {
    let (table, session) = (table(), SessionId::new());
    let Minted { grant, key } = table.mint(1, session);
    let path = table.folder.path().to_owned();
    std::fs::remove_dir_all(&path).unwrap();
    let cage = CageId::new();
    let told = table.grants.count(grant.id, cage, &terms(session));
    assert_eq!(code(told), ErrorCode::StorageUnavailable);
    std::fs::create_dir(&path).unwrap();
    // Not counted by that, so that it can be used once there is room again.
    usable(&table.grants, &key).unwrap();
    table.grants.count(grant.id, cage, &terms(session)).unwrap();
}

#[test]
fn only_hashes_are_on_the_disk_and_only_for_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let (table, session) = (table(), SessionId::new());
    let Minted { grant, key } = table.mint(1, session);
    let path = table.folder.path().join(format!("{}.json", grant.id));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&key.secret));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(table.folder.path().join(format!("{}.new", grant.id)), "half").unwrap();
    std::fs::write(table.folder.path().join(format!("{}.json", GrantId::new())), "{}").unwrap();
    assert_eq!(table.again().list().len(), 1);
    table.grants.forget(grant.id).unwrap();
    table.grants.forget(grant.id).unwrap();
    assert!(table.again().list().is_empty());
}

#[test]
fn sizes_and_numbers_have_bounds() {
    let (table, session) = (table(), SessionId::new());
    let ann = operator(7, false);
    let mint = |size| code(table.grants.mint(GrantId::new(), size, terms(session), &ann));
    for size in [(0, 60_000), (GRANT_CAGES_MAX + 1, 60_000), (1, 999), (1, GRANT_MS_MAX + 1)] {
        assert_eq!(mint(size), ErrorCode::ValidationFailed, "{size:?}");
    }
    let first = table.mint(1, session).grant.id;
    let twice = table.grants.mint(first, (1, 60_000), terms(session), &ann);
    assert_eq!(code(twice), ErrorCode::Conflict);
    for _number in 1..GRANTS_MAX {
        table.mint(1, session);
    }
    assert_eq!(mint((1, 60_000)), ErrorCode::LimitReached);
    // Another operator has their own; a revoked one makes room.
    let bob = operator(8, false);
    table.grants.mint(GrantId::new(), (1, 60_000), terms(session), &bob).unwrap();
    table.grants.revoke(first, &ann).unwrap();
    table.mint(1, session);
}
