//! A mount that nobody looks at. A program of its own: its name space has the mounts of whoever works beside it, for as long as
//! it lasts.

use narufs_testing::lab::Ring;
use narufs_testing::place::{Place, require_mounts};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is mounted and unmounted where nobody else can look at it, with one umount(2) each time.
const ALONE: &str = r#"
trap 'umount -i -l "$point" 2> /dev/null' EXIT
for round in $(seq 20); do
    "$narufs" mount "$image" "$point" && umount -i "$point" || exit
    "$narufs" mount "$image" "$point" || exit
    head -c 65536 /dev/zero > "$point/file" && sync "$point/file" && rm "$point/file" || exit
    umount -i "$point" || exit
done
"#;

#[test]
#[ignore = "needs root and /dev/fuse"]
fn nobody_of_ours_is_at_a_mount_that_works_or_was_written_to() {
    require_mounts();
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Place::make(under, Ring::Ssd, 64 << 20, 4096).expect("room");
    let (image, point) = (place.image(), place.point());
    // A name space of its own: others look at mounts that they see, and a look lasts for as long as its answer.
    let mut script = Command::new("unshare");
    script.args(["--mount", "--propagation", "private", "sh", "-c", ALONE]).stdin(Stdio::null());
    script.env("narufs", env!("CARGO_BIN_EXE_narufs")).env("image", &image).env("point", &point);
    let out = script.output().expect("it starts");
    // The last server has the image until it has ended.
    let image = File::open(&image).expect("it is there");
    flock(&image, FlockOperation::LockExclusive).expect("nobody keeps it");
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
}
