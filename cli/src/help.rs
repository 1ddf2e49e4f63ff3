//! The help pages: what clap makes of the [arguments](crate::args), and below it what [`pages`] says of each
//! command, laid out for the terminal that shows it.
//!
//! clap breaks lines that are too long, and knows nothing of columns: nothing is left for it to break.

pub mod manual;
mod pages;

use crate::args::Cli;
use clap::{Command, CommandFactory};
use textwrap::{Options, WordSplitter};

/// Columns of the widest page, however wide the terminal is, and of one that no terminal shows.
const WIDEST: usize = 100;
/// Columns before a term, and at least so many after it.
const GAP: usize = 2;
/// Columns before what continues a command line.
const CONTINUED: usize = 6;

/// A part of a page, one empty line away from the next.
enum Part {
    /// A paragraph.
    Text(&'static str),
    /// A heading, and below it terms, or command lines, with what is to be said of each, if anything.
    Table(&'static str, &'static [(&'static str, &'static str)]),
}

/// The command line with its help pages, for the terminal there is.
pub fn command() -> Command {
    command_at(width())
}

/// Columns of a page, as clap would find them.
fn width() -> usize {
    let given = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    terminal.or_else(given).filter(|columns| *columns > 0).unwrap_or(WIDEST).min(WIDEST)
}

fn command_at(width: usize) -> Command {
    let with_page = |command: Command| match pages::below(command.get_name()) {
        [] => command,
        parts => command.after_help(lay_out(parts, width)),
    };
    with_page(Cli::command().term_width(width)).mut_subcommands(with_page)
}

fn lay_out(parts: &[Part], width: usize) -> String {
    let laid_out = parts.iter().map(|part| match part {
        Part::Text(text) => wrap(text, "", "", width).join("\n"),
        Part::Table(heading, rows) => {
            let column = column(rows, width);
            let rows = rows.iter().map(|(term, said)| row(term, said, column, width));
            std::iter::once((*heading).to_string()).chain(rows).collect::<Vec<_>>().join("\n")
        }
    });
    laid_out.collect::<Vec<_>>().join("\n\n")
}

/// Where the right column of a table begins: beyond the longest term that leaves it half of the page. What is
/// said of a longer one begins on the next line.
fn column(rows: &[(&str, &str)], width: usize) -> usize {
    let explained = rows.iter().filter(|(_, said)| !said.is_empty());
    let beside = explained.map(|(term, _)| GAP + term.len() + GAP).filter(|end| *end <= width / 2);
    beside.max().unwrap_or(width / 4)
}

/// The lines of a row. A command line that is too long is broken as a shell reads it.
fn row(term: &str, said: &str, column: usize, width: usize) -> String {
    let margin = " ".repeat(GAP);
    let lines = wrap(term, &margin, &" ".repeat(CONTINUED), width - " \\".len());
    let alone = lines.join(" \\\n");
    let indent = " ".repeat(column);
    match said {
        "" => alone,
        _ if GAP + term.len() + GAP <= column => {
            wrap(said, &format!("{alone:column$}"), &indent, width).join("\n")
        }
        _ => format!("{alone}\n{}", wrap(said, &indent, &indent, width).join("\n")),
    }
}

fn wrap(text: &str, first: &str, others: &str, width: usize) -> Vec<String> {
    let how = Options::new(width).initial_indent(first).subsequent_indent(others);
    let how = how.break_words(false).word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(text, how).into_iter().map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTHS: [usize; 5] = [60, 72, 80, 90, 100];

    /// The names of all commands, and of the program itself.
    fn names() -> Vec<String> {
        let program = Cli::command();
        let names = program.get_subcommands().map(|command| command.get_name().to_string());
        std::iter::once("narufs".to_string()).chain(names).collect()
    }

    /// What `narufs NAME -h` and `narufs NAME --help` say.
    fn rendered(name: &str, width: usize) -> [String; 2] {
        let mut program = command_at(width);
        program.build();
        let command = match name {
            "narufs" => &mut program,
            _ => program.find_subcommand_mut(name).expect("it is there"),
        };
        [command.render_help().to_string(), command.render_long_help().to_string()]
    }

    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().filter(|word| *word != "\\").collect()
    }

    /// Each line of a table begins with a term, goes on with a command line, or stands in the right column.
    fn check_table(page: &str, heading: &str, rows: &[(&str, &str)], width: usize) {
        let (_, below) = page.split_once(&format!("{heading}\n")).expect("the heading stands alone");
        let table: Vec<&str> = below.lines().take_while(|line| !line.is_empty()).collect();
        let column = column(rows, width);
        let mut goes_on = false;
        for line in &table {
            let indent = line.len() - line.trim_start().len();
            let is_term = indent == GAP && rows.iter().any(|(term, _)| words(term)[0] == words(line)[0]);
            assert!(is_term || indent == column || goes_on && indent == CONTINUED, "{width}: {line}\n{page}");
            goes_on = line.ends_with('\\');
        }
        let said: Vec<&str> =
            rows.iter().flat_map(|(term, said)| [words(term), words(said)].concat()).collect();
        assert_eq!(words(&table.join("\n")), said, "{width}: {page}");
    }

    #[test]
    fn pages_keep_their_columns_at_any_width() {
        for (name, width) in names().iter().flat_map(|name| WIDTHS.map(|width| (name, width))) {
            for page in rendered(name, width) {
                for line in page.lines() {
                    assert!(line.chars().count() <= width, "{name} at {width}: {line}");
                }
                for part in pages::below(name) {
                    match part {
                        Part::Text(text) => assert!(words(&page).join(" ").contains(&words(text).join(" "))),
                        Part::Table(heading, rows) => check_table(&page, heading, rows, width),
                    }
                }
            }
        }
    }

    #[test]
    fn a_default_is_said_once() {
        for command in command_at(WIDEST).get_subcommands() {
            for argument in command.get_arguments().filter(|a| !a.get_default_values().is_empty()) {
                let said = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!said.contains("[default"), "{}: {said}", command.get_name());
            }
        }
    }

    #[test]
    fn a_command_line_is_broken_as_a_shell_reads_it() {
        let line = row("narufs mount --scratch --memory 4G /mnt/fast", "in memory", 12, 34);
        assert_eq!(line, "  narufs mount --scratch \\\n      --memory 4G /mnt/fast\n            in memory");
    }
}
