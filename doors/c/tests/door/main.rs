//! The library for C as programs in C meet it: laid as `make install` lays it, found by pkg-config alone, and used by
//! programs that the compiler of the machine makes.

mod laid;
mod lists;

use laid::{Program, laid};

#[test]
fn every_function_does_what_it_says() {
    Program::new("tests/c/every.c").run_on_an_image();
}

#[test]
fn the_archive_alone_does_too() {
    Program::new("tests/c/every.c").of_the_archive().run_on_an_image();
}

#[test]
fn every_function_touches_no_memory_that_is_not_its_own() {
    Program::new("tests/c/every.c").with(&["-fsanitize=address,undefined"]).run_on_an_image();
}

#[test]
fn wrong_handles_and_pointers_are_errors_and_never_a_crash() {
    Program::new("tests/c/hostile.c").with(&["-fsanitize=address,undefined"]).run(&[]);
}

#[test]
fn threads_use_and_close_the_same_handles() {
    Program::new("tests/c/threads.c").run_on_an_image();
}

/// What the library itself does is not looked at, for it is compiled without: that its calls order what threads do for
/// each other is, and that a buffer is left alone after the call.
#[test]
fn threads_use_and_close_the_same_handles_without_a_race_of_theirs() {
    Program::new("tests/c/threads.c").with(&["-fsanitize=thread"]).run_on_an_image();
}

#[test]
fn forks_amid_writers_leave_parent_and_image_whole() {
    Program::new("tests/c/fork.c").run_on_an_image();
}

#[test]
fn files_are_used_until_a_program_has_ended_and_no_message_goes_into_an_image() {
    Program::new("tests/c/end.c").run_on_an_image();
}

#[test]
fn the_examples_work() {
    for (example, says) in [("examples/queue.c", "hello\n"), ("examples/queue.cc", "hello from C++\n")] {
        let place = tempfile::tempdir().expect("room");
        let image = place.path().join("queue.img");
        let program = Program::new(example);
        for _ in 0..2 {
            assert_eq!(program.run(&[&image]), says, "{example}");
        }
    }
}

#[test]
fn the_shared_library_has_its_name_and_versions_and_shows_nothing_else() {
    let library = laid().lib.join("libnarufs.so");
    let says = |words: &[&str]| laid::output(std::process::Command::new("readelf").args(words).arg(&library));
    assert!(says(&["-d"]).contains("[libnarufs.so.0]"));
    assert!(says(&["-d"]).contains("NODELETE"));
    let symbols = says(&["--dyn-syms", "-W"]);
    // What it defines, not what it takes of others.
    let shown: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains(" GLOBAL ") && !line.contains(" UND "))
        .filter_map(|line| line.split_whitespace().nth(7))
        .collect();
    let wrong: Vec<_> =
        shown.iter().filter(|s| !s.starts_with("narufs_") && !s.starts_with("NARUFS_")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    for function in lists::functions() {
        assert!(shown.contains(&format!("{function}@@NARUFS_0.1").as_str()), "{function}: {shown:?}");
    }
}
