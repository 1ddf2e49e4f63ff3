//! The stock sqlite3 of the system, with the extension.

#![allow(dead_code, reason = "no test uses all of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// A directory with an image, which goes with it.
pub struct Place {
    _dir: tempfile::TempDir,
    pub image: PathBuf,
    origin: &'static str,
}

/// What a shell has said.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub err: String,
    pub status: ExitStatus,
}

/// The extension that cargo has built beside this test.
pub fn extension() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("it lies in a directory");
    let built = deps.join("libnarufs_sqlite.so");
    assert!(built.exists(), "{} is not built", built.display());
    built
}

impl Place {
    pub fn new() -> Place {
        Place::of_size("64M")
    }

    pub fn of_size(size: &str) -> Place {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
        let place = Place { image: dir.path().join("image"), _dir: dir, origin: "" };
        let made = place.run(&format!(
            "ATTACH 'file:/made?vfs=narufs&image={}&size={size}' AS made;",
            place.image.display()
        ));
        assert!(made.status.success(), "{made:?}");
        place
    }

    /// The URI of a database in the image.
    pub fn uri(&self, name: &str) -> String {
        format!("file:/{name}?vfs=narufs&image={}", self.image.display())
    }

    /// A shell that is about to run: dot commands and SQL, with no database open.
    pub fn shell(&self) -> Command {
        self.shell_by(&["sqlite3"])
    }

    /// The same, started by other words.
    pub fn shell_by(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        // Cached memory of a child of a test would be that of the machine.
        command.env("NARUFS_SQLITE_MEMORY", "64M").env("NARUFS_SQLITE_ORIGIN", self.origin);
        command.args(["-batch", "-bail", "-cmd", ".log stderr", "-cmd"]);
        command.arg(format!(".load {}", extension().display())).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs SQL, whatever comes of it.
    pub fn run(&self, sql: &str) -> Said {
        said(self.shell(), sql)
    }

    /// A database of the system that lies beside the image.
    pub fn beside(&self) -> PathBuf {
        self.image.with_file_name("beside.db")
    }

    /// Runs SQL on that alone.
    pub fn outside(&self, sql: &str) -> Said {
        self.run(&format!(".open {}\n{sql}", self.beside().display()))
    }

    /// Runs SQL on a database of the image; what it says.
    pub fn sql(&self, name: &str, sql: &str) -> String {
        let said = self.run(&format!(".open {}\n{sql}", self.uri(name)));
        assert!(said.status.success(), "{sql}: {said:?}");
        said.out.trim_end().to_owned()
    }

    /// The image as a loss of power would leave it: what is in the file, without what is in shared memory.
    pub fn copied(&self, name: &str) -> Place {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
        let image = dir.path().join(name);
        std::fs::copy(&self.image, &image).expect("room");
        Place { _dir: dir, image, origin: "" }
    }

    /// Has the image away from its path until what is given is dropped.
    pub fn hidden(&self) -> Hidden<'_> {
        let away = self.image.with_extension("away");
        std::fs::rename(&self.image, &away).expect("it is there");
        Hidden { image: &self.image, away }
    }

    /// To be opened as a copy of an image that was not closed.
    pub fn into_copied(mut self) -> Place {
        self.origin = "copied";
        self
    }
}

/// An image that is elsewhere for the time being.
pub struct Hidden<'a> {
    image: &'a std::path::Path,
    away: PathBuf,
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // A test that has failed already says more.
        let _ = std::fs::rename(&self.away, self.image);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A clean close takes what lies in shared memory for the image.
        let _ = self.run(&format!(".open {}\nSELECT count(*) FROM sqlite_schema;", self.uri("left")));
    }
}

/// Starts a shell and gives it all that it is to run.
pub fn start(mut command: Command, sql: &str) -> Child {
    let mut child = command.spawn().expect("sqlite3 is installed");
    let mut input = child.stdin.take().expect("piped");
    let sql = sql.to_owned();
    // A shell that ends early reads no more.
    std::thread::spawn(move || drop(input.write_all(sql.as_bytes())));
    child
}

/// Runs a shell to its end.
pub fn said(command: Command, sql: &str) -> Said {
    let output = start(command, sql).wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Said { out: text(output.stdout), err: text(output.stderr), status: output.status }
}

/// A shell that is asked one thing after the other; what it says and complains of comes in order.
pub struct Talk {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

/// Words that have the shell say everything at once, and by one way.
const AT_ONCE: [&str; 6] = ["sh", "-c", "exec \"$@\" 2>&1", "sh", "stdbuf", "-oL"];

/// What ends an answer.
const END: &str = "-- that was all --";

impl Talk {
    /// With the extension, on a database of the image; `parameters` are more of its URI.
    pub fn inside(place: &Place, name: &str, parameters: &str) -> Talk {
        let mut talk = Talk::begin(place.shell_by(&[&AT_ONCE[..], &["sqlite3"]].concat()));
        talk.ask(&format!(".bail off\n.open {}{parameters}", place.uri(name)));
        talk
    }

    /// With the extension, one more variable of the environment (`NAME=value`), and no database.
    pub fn with(place: &Place, variable: &str) -> Talk {
        Talk::begin(place.shell_by(&[&AT_ONCE[..], &["env", variable, "sqlite3"]].concat()))
    }

    /// With nothing but SQLite's own VFS.
    pub fn outside(path: &std::path::Path) -> Talk {
        let mut command = Command::new(AT_ONCE[0]);
        command.args(&AT_ONCE[1..]).arg("sqlite3").arg("-batch").arg(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Talk::begin(command)
    }

    fn begin(mut command: Command) -> Talk {
        let mut child = command.spawn().expect("sqlite3 is installed");
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("piped")));
        Talk { child, to, from }
    }

    /// Runs SQL and commands of the shell; what it says.
    pub fn ask(&mut self, sql: &str) -> String {
        self.tell(sql);
        self.answer()
    }

    /// The same, without waiting for the answer.
    pub fn tell(&mut self, sql: &str) {
        let to = self.to.as_mut().expect("it has not ended");
        writeln!(to, "{sql}\n.print {END}").expect("it reads");
    }

    /// What it says to what it was told.
    pub fn answer(&mut self) -> String {
        let mut said = String::new();
        for line in self.from.by_ref().lines().map(|line| line.expect("text")) {
            if line == END {
                return said.trim_end().to_owned();
            }
            said += &format!("{line}\n");
        }
        panic!("it has ended: {said}");
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }

    /// Has it end in its own way, by these words or at the end of what it reads; how it did.
    pub fn end(mut self, words: &str) -> ExitStatus {
        let mut to = self.to.take().expect("it has not ended");
        // One that ends early reads no more.
        let _ = writeln!(to, "{words}");
        drop(to);
        self.child.wait().expect("it ends")
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
