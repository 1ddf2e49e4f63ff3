//! No test passes without having tested anything: what it needs of a machine stands in its `#[ignore]`, and is demanded
//! when it runs. And what may be tried once more is known.

use std::path::{Path, PathBuf};
use std::process::Command;

use syn::visit::{self, Visit};

use super::exceptions;
use super::hold;
use super::source::TREE;

/// Finds tests, and those of them that may end early.
#[derive(Default)]
struct Tests {
    file: String,
    names: Vec<String>,
    /// Of the test that is looked at.
    returns: usize,
    early: Vec<String>,
}

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !item.attrs.iter().any(|a| a.path().is_ident("test")) {
            return;
        }
        self.returns = 0;
        visit::visit_block(self, &item.block);
        let name = item.sig.ident.to_string();
        let is_excepted = exceptions::CHILDREN.iter().any(|(listed, _)| *listed == name);
        if self.returns > 0 && !is_excepted {
            self.early.push(format!("{}:{}: {name}", self.file, item.sig.ident.span().start().line));
        }
        self.names.push(name);
    }

    fn visit_expr_return(&mut self, expression: &'ast syn::ExprReturn) {
        self.returns += usize::from(expression.expr.is_none());
        visit::visit_expr_return(self, expression);
    }

    /// What returns within these ends something else.
    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}
}

fn tests() -> Tests {
    let mut tests = Tests::default();
    for source in &TREE.rust {
        tests.file.clone_from(&source.path);
        tests.visit_file(&syn::parse_file(&source.text).expect("Rust"));
    }
    tests
}

#[test]
fn no_test_ends_before_it_has_tested() {
    let tests = tests();
    for (name, _) in exceptions::CHILDREN {
        assert!(tests.names.iter().any(|test| test == name), "{name} is excepted, and not there");
    }
    hold("tests that end early", exceptions::EARLY_ENDS, &tests.early);
}

fn list() -> PathBuf {
    TREE.root.join("scripts/retried.txt")
}

#[test]
fn what_is_tried_once_more_is_there_and_has_its_reason() {
    let tests = tests().names;
    let text = std::fs::read_to_string(list()).expect("the list");
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (path, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let name = path.rsplit("::").next().unwrap_or(path);
        assert!(tests.iter().any(|test| test == name), "{path} is listed, and no test");
        assert!(reason.split_whitespace().count() > 3, "{path} is listed without a reason");
    }
}

/// How retried.sh says to go on after a log, with a list of one name; or what it holds against it.
fn retried(log: &[&str]) -> Result<String, String> {
    let dir = tempfile::tempdir().expect("room");
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("room");
        path
    };
    let log = write("log", log.join("\n") + "\n");
    let list = write("list", "# a comment\nbelow::listed\tfor a good reason\n".into());
    run(&[log.as_path(), list.as_path()])
}

fn run(words: &[&Path]) -> Result<String, String> {
    let out = Command::new(TREE.root.join("scripts/retried.sh")).args(words).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim_end().to_owned();
    if out.status.success() { Ok(text(out.stdout)) } else { Err(text(out.stderr)) }
}

/// What cargo and the tests of one program say, of which these failed.
fn failed<'a>(names: &[&'a str], again: &'a str) -> Vec<&'a str> {
    let mut lines = vec!["running 9 tests", "failures:", "", "---- x stdout ----", "    1", "", "failures:"];
    lines.extend(names);
    lines.extend([
        "",
        "test result: FAILED. 8 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
        "",
        again,
    ]);
    lines
}

#[test]
fn only_what_is_listed_is_tried_once_more() {
    const ONE: &str = "error: test failed, to rerun pass `-p a --test one`";
    const TWO: &str = "error: test failed, to rerun pass `-p a --lib`";
    const LISTED: &str = "    below::listed";
    let alone = [failed(&[LISTED], ONE), vec!["error: 1 target failed:", "    `-p a --test one`"]].concat();
    assert_eq!(retried(&alone).as_deref(), Ok("-p a --test one -- below::listed"));
    let both = [failed(&[LISTED], ONE), failed(&[LISTED], TWO)].concat();
    assert_eq!(
        retried(&both).as_deref(),
        Ok("-p a --test one -- below::listed\n-p a --lib -- below::listed")
    );
    let beside = failed(&[LISTED, "    below::other"], ONE);
    assert_eq!(retried(&beside), Err("not on the list: the test below::other".into()));
    let elsewhere = [failed(&[LISTED], ONE), failed(&["    other"], TWO)].concat();
    assert_eq!(retried(&elsewhere), Err("not on the list: the test other".into()));
    // A program that was killed names no test; the names of another are not its own.
    let killed = [failed(&[LISTED], ONE), vec!["running 1 test", TWO]].concat();
    assert!(retried(&killed).is_err_and(|said| said.contains("-p a --lib, which did not end by itself")));
    let unbuilt = [failed(&[LISTED], ONE), vec!["error[E0432]: unresolved import"]].concat();
    assert!(retried(&unbuilt).is_err_and(|said| said.contains("unresolved import")));
    let fewer = [failed(&[LISTED], ONE), vec!["error: 2 targets failed:"]].concat();
    assert!(retried(&fewer).is_err());
    assert!(retried(&["all is well"]).is_err(), "nothing has failed that could be tried");
}
