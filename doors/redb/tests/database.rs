//! Databases in an image: what redb does with files, done here.

use narufs::{FormatOptions, Fs, MountOptions};
use narufs_redb::NarufsBackend;
use redb::{
    Builder, ConcurrencyMode, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageBackend, TableDefinition,
};
use std::io::ErrorKind;
use tempfile::TempDir;

const NUMBERS: TableDefinition<u64, &[u8]> = TableDefinition::new("numbers");

/// An image that is open.
struct Place {
    fs: Fs,
    dir: TempDir,
}

fn open(dir: &TempDir) -> Fs {
    Fs::open(dir.path().join("image"), &MountOptions::new().memory(64 << 20)).expect("it is closed")
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().expect("room");
        Fs::format(dir.path().join("image"), &FormatOptions::new().size(128 << 20)).expect("room");
        Place { fs: open(&dir), dir }
    }

    fn reopened(self) -> Place {
        self.fs.close().expect("nothing is in use");
        Place { fs: open(&self.dir), dir: self.dir }
    }

    fn database(&self, name: &str) -> Database {
        Builder::new().create_with_backend(self.backend(name)).expect("it is not open")
    }

    fn backend(&self, name: &str) -> NarufsBackend {
        NarufsBackend::create(&self.fs, name).expect("room")
    }
}

fn insert(db: &Database, keys: std::ops::Range<u64>, bytes: usize) {
    let write = db.begin_write().expect("nobody else writes");
    for key in keys {
        let value = vec![key as u8; bytes];
        write.open_table(NUMBERS).expect("a table").insert(key, &*value).expect("room");
    }
    write.commit().expect("room");
}

fn keys(db: &impl ReadableDatabase) -> u64 {
    let read = db.begin_read().expect("it is open");
    read.open_table(NUMBERS).expect("a table").len().expect("it can be read")
}

#[test]
fn what_was_committed_is_there_when_the_image_is_opened_again() {
    let place = Place::new();
    let db = place.database("/a.redb");
    insert(&db, 0..100, 500);
    drop(db);
    let place = place.reopened();
    let mut db = place.database("/a.redb");
    assert_eq!(keys(&db), 100);
    assert!(db.check_integrity().expect("it can be read"));
    let read = db.begin_read().expect("it is open");
    let table = read.open_table(NUMBERS).expect("a table");
    for row in table.iter().expect("it can be read") {
        let (key, value) = row.expect("it can be read");
        assert_eq!(value.value(), vec![key.value() as u8; 500]);
    }
}

#[test]
fn a_large_transaction_is_read_while_it_is_written_and_after_it() {
    let place = Place::new();
    let mut db = Builder::new()
        .set_cache_size(64 << 10)
        .create_with_backend(place.backend("/a.redb"))
        .expect("it is not open");
    for (two_phases, keys) in [(false, 0..3000), (true, 3000..6000)] {
        let mut write = db.begin_write().expect("nobody else writes");
        write.set_two_phase_commit(two_phases);
        {
            let mut table = write.open_table(NUMBERS).expect("a table");
            for key in keys.clone() {
                table.insert(key, &*vec![key as u8; 3000]).expect("room");
            }
            for key in keys {
                let value = table.get(key).expect("it can be read").expect("it is there");
                assert_eq!(value.value(), vec![key as u8; 3000]);
            }
        }
        write.commit().expect("room");
    }
    assert_eq!(keys(&db), 6000);
    assert!(db.check_integrity().expect("it can be read"));
    let write = db.begin_write().expect("nobody else writes");
    write.open_table(NUMBERS).expect("a table").retain(|key, _| key < 10).expect("room");
    write.commit().expect("room");
    let before = place.fs.metadata("/a.redb").expect("it is there").len();
    assert!(db.compact().expect("nothing is in use"));
    assert!(place.fs.metadata("/a.redb").expect("it is there").len() < before);
    drop(db);
    assert_eq!(keys(&place.reopened().database("/a.redb")), 10);
}

#[test]
fn a_database_that_is_open_is_refused_to_others() {
    let place = Place::new();
    let db = place.database("/a.redb");
    insert(&db, 0..1, 1);
    let refused = Builder::new().create_with_backend(place.backend("/a.redb"));
    assert!(matches!(refused, Err(DatabaseError::DatabaseAlreadyOpen)));
    let read_only = || NarufsBackend::open_read_only(&place.fs, "/a.redb").expect("it is there");
    let refused = Builder::new().open_read_only_with_backend(read_only());
    assert!(matches!(refused, Err(DatabaseError::DatabaseAlreadyOpen)));
    insert(&db, 1..2, 1);
    drop(db);

    let reader = Builder::new().open_read_only_with_backend(read_only()).expect("nobody writes");
    let other = Builder::new().open_read_only_with_backend(read_only()).expect("nobody writes");
    assert_eq!((keys(&reader), keys(&other)), (2, 2));
    let refused = Builder::new().create_with_backend(place.backend("/a.redb"));
    assert!(matches!(refused, Err(DatabaseError::DatabaseAlreadyOpen)));
    drop((reader, other));
    insert(&place.database("/a.redb"), 2..3, 1);
}

#[test]
fn databases_of_one_image_are_independent() {
    let place = Place::new();
    let (one, other) = (place.database("/a.redb"), place.database("/b.redb"));
    std::thread::scope(|scope| {
        for (db, bytes) in [(&one, 100), (&other, 2000)] {
            scope.spawn(move || (0..50).for_each(|key| insert(db, key..key + 1, bytes)));
        }
    });
    assert_eq!((keys(&one), keys(&other)), (50, 50));
    drop(one);
    insert(&other, 50..60, 1);
    drop(other);
    let place = place.reopened();
    assert_eq!((keys(&place.database("/a.redb")), keys(&place.database("/b.redb"))), (50, 60));
}

#[test]
fn readers_follow_a_writer_where_the_file_is_shared() {
    for mode in [ConcurrencyMode::SingleWriter, ConcurrencyMode::MultiWriter] {
        let place = Place::new();
        let mut builder = Builder::new();
        builder.set_concurrency_mode(mode);
        let writer = builder.create_with_backend(place.backend("/a.redb")).expect("it is not open");
        insert(&writer, 0..1, 10);
        let backend = NarufsBackend::open_read_only(&place.fs, "/a.redb").expect("it is there");
        let reader = builder.open_read_only_with_backend(backend).expect("it is shared");
        for key in 1..30 {
            insert(&writer, key..key + 1, 1000);
            assert_eq!(keys(&reader), key + 1, "{mode:?}");
        }
    }
}

#[test]
fn writers_of_one_file_take_turns() {
    let place = Place::new();
    let mut builder = Builder::new();
    builder.set_concurrency_mode(ConcurrencyMode::MultiWriter);
    let one = builder.create_with_backend(place.backend("/a.redb")).expect("it is not open");
    let other = builder.create_with_backend(place.backend("/a.redb")).expect("it is shared");
    std::thread::scope(|scope| {
        for (db, first) in [(&one, 0), (&other, 1000)] {
            scope.spawn(move || (first..first + 40).for_each(|key| insert(db, key..key + 1, 100)));
        }
    });
    assert_eq!((keys(&one), keys(&other)), (80, 80));
}

#[test]
fn what_was_not_durable_is_there_after_an_orderly_close() {
    let place = Place::new();
    let db = place.database("/a.redb");
    insert(&db, 0..1, 1);
    let mut write = db.begin_write().expect("nobody else writes");
    write.set_durability(Durability::None).expect("there is no savepoint");
    write.open_table(NUMBERS).expect("a table").insert(1, &b"1"[..]).expect("room");
    write.commit().expect("room");
    assert_eq!(keys(&db), 2);
    drop(db);
    assert_eq!(keys(&place.reopened().database("/a.redb")), 2);
}

#[test]
fn what_lies_beyond_the_end_cannot_be_read() {
    let place = Place::new();
    let backend = place.backend("/a");
    backend.set_len(4096).expect("room");
    let kind = |offset, len| backend.read(offset, &mut vec![0; len]).map_err(|e| e.kind());
    assert_eq!(kind(0, 4096), Ok(()));
    assert_eq!(kind(1, 4096), Err(ErrorKind::UnexpectedEof));
    assert_eq!(kind(4096, 1), Err(ErrorKind::UnexpectedEof));
    assert_eq!(kind(u64::MAX, 1), Err(ErrorKind::UnexpectedEof));
    backend.write(4095, &[1, 2]).expect("it gets longer, as a file does");
    assert_eq!(backend.len().expect("it is open"), 4097);
}

#[test]
fn errors_are_of_the_kind_that_files_have() {
    let place = Place::new();
    let missing = NarufsBackend::open(&place.fs, "/missing").expect_err("there is none");
    assert_eq!(missing.errno(), libc::ENOENT);
    place.fs.write("/none.redb", vec![7; 8192]).expect("room");
    let backend = NarufsBackend::open(&place.fs, "/none.redb").expect("it is there");
    assert!(matches!(Builder::new().create_with_backend(backend), Err(DatabaseError::Storage(_))));

    let db = place.database("/a.redb");
    insert(&db, 0..1, 1);
    let fill = || -> Result<(), redb::Error> {
        let write = db.begin_write()?;
        for key in 1..1000 {
            write.open_table(NUMBERS)?.insert(key, &*vec![0; 1 << 20])?;
        }
        Ok(write.commit()?)
    };
    let Err(redb::Error::Io(error)) = fill() else { panic!("there is no room for 1 GiB") };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    drop(db);
    assert_eq!(keys(&place.database("/a.redb")), 1);
}
