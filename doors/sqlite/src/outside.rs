//! Names that those have written who come through the directory where an image is served.
//!
//! A journal names its super-journal by the path that its writer knew. A stock SQLite that was killed in the commit of
//! several databases has left names below that directory, which mean nothing in the image: taken for a name of it, the
//! super-journal would not be there, and SQLite would throw the journal away and leave its database torn.

use crate::mount::{misleads, open_mounts};
use crate::names::{Place, meant_in_an_image, normal};
use std::path::Path;

/// The database that the name of a super-journal begins with, if it is one: SQLite makes them so.
fn database_of(name: &str) -> Option<&str> {
    let (db, random) = name.rsplit_once("-mj")?;
    (!random.is_empty() && !random.contains('/') && !meant_in_an_image(name)).then_some(db)
}

/// What the name of a super-journal means if it lies below a directory where an image is served.
pub fn meaning(name: &str) -> Option<Place> {
    let db = database_of(name)?;
    let below = format!("/{}", normal(name));
    open_mounts().iter().find_map(|mount| {
        let path = Path::new(&below).strip_prefix(mount.served_at()?).ok()?;
        // One of the image's own that happens to be called so.
        let is_own = mount.fs.metadata(db).is_ok();
        (!is_own).then(|| Place { image: mount.image().to_owned(), path: format!("/{}", path.display()) })
    })
}

/// Whether a name that leads to nothing in an image is that of a super-journal of others: it says nothing of whether
/// they have committed.
pub fn is_others(name: &str, place: &Place) -> bool {
    let Some((db, _)) = database_of(name).and_then(|_| place.path.rsplit_once("-mj")) else { return false };
    let mounts = open_mounts();
    let mount = mounts.iter().find(|mount| mount.image() == place.image);
    mount.is_some_and(|mount| mount.fs.metadata(db).is_err_and(|e| e.errno() == libc::ENOENT))
}

/// Why a name that leads to nothing says nothing of whether those have committed whose journal has it, if so: it is
/// that of a super-journal, in an environment that gave it another meaning.
pub fn is_elsewhere(name: &str) -> Option<String> {
    database_of(name).filter(|_| meaning(name).is_none()).and_then(|_| misleads(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::mount;
    use crate::wishes::Wishes;

    #[test]
    #[ignore = "needs root and /dev/fuse"]
    fn names_below_the_directory_are_those_of_the_image() {
        let room = tempfile::tempdir().expect("room");
        let (image, dir) = (room.path().join("image"), room.path().join("inside"));
        std::fs::create_dir(&dir).expect("room");
        let serve = Some(dir.to_str().expect("words").to_owned());
        let wishes = Wishes { size: Some("16M".into()), makes: true, serve, ..Wishes::default() };
        let mount = mount(&image, wishes).expect("root, and /dev/fuse");
        for (name, path) in [("a.db-mj0123", "/a.db-mj0123"), ("b/../c/a.db-mj9", "/c/a.db-mj9")] {
            let found = meaning(&format!("{}/{name}", dir.display())).expect("it is below");
            assert_eq!((found.image, found.path), (image.clone(), path.to_owned()));
        }
        let own = dir.join("own.db");
        mount.fs.create_dir_all(&dir).expect("room");
        mount.fs.create_new(&own).expect("room");
        for name in [
            "/elsewhere/a.db-mj0123",
            &format!("{}-mj1", own.display()),
            &format!("{}/a.db-journal", dir.display()),
            &format!("{}::/a.db-mj1", image.display()),
        ] {
            assert!(meaning(name).is_none(), "{name}");
        }
        let place = |path: &str| Place { image: image.clone(), path: path.to_owned() };
        assert!(is_others("/elsewhere/a.db-mj1", &place("/elsewhere/a.db-mj1")));
        let name = format!("{}-mj1", own.display());
        assert!(!is_others(&name, &place(&name)), "the image's own");
        assert!(!is_others("/elsewhere/a.db-wal", &place("/elsewhere/a.db-wal")));
        let full = format!("{}::/gone.db-mj1", image.display());
        assert!(!is_others(&full, &place("/gone.db-mj1")), "written here");
    }
}
