//! The program that `narufs bench` starts is of another crate, for whose build cargo does not wait here.

use std::path::Path;
use std::process::Command;
use std::sync::Once;

/// Builds it where the workspace was not built as a whole.
pub fn build() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_narufs")).with_file_name("narufs-bench");
        if program.exists() {
            return;
        }
        let dir = program.parent().expect("it lies in a directory");
        let profile = match dir.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let target = dir.parent().expect("one for all profiles");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--locked",
            "--package",
            "narufs-bench",
            "--bin",
            "narufs-bench",
            "--profile",
            profile,
        ]);
        let built = cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(built.expect("cargo starts").success());
    });
}
