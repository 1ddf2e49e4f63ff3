//! The man pages: what clap knows of the [arguments](crate::args), and what [`pages`] says of each command, in the order
//! that readers of man pages are used to. There is one for the program, for each command, and for each name under which
//! mkfs(8), mount(8), umount(8) and fsck(8) call it.

use super::Part::{self, Table, Text};
use super::pages;
use crate::args::Cli;
use crate::called::NAMES;
use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::io;

/// All of them are about administration.
const SECTION: &str = "8";

/// One page.
pub struct Page {
    /// The name of its file.
    pub file: String,
    /// It, for man(1).
    pub text: Vec<u8>,
}

/// What a page says besides what the help of its command does.
const BESIDE: &[(&str, &[Part])] = &[(
    "mount.narufs",
    &[
        Text(
            "mount(8) calls this program for the type narufs; `mount -t narufs` and lines of fstab(5) take the \
                 same options. Through mount(8) root gets set-user-id programs and devices unless nosuid and nodev \
                 are said, as with every file system of the kernel.",
        ),
        Table(
            "Examples:",
            &[
                ("mount -t narufs disk.img /mnt/naru", ""),
                ("/var/lib/disk.img /mnt/naru narufs nofail 0 0", "a line of /etc/fstab: an image in a file"),
                ("/dev/nvme0n1p4 /mnt/naru narufs noatime,nofail 0 2", "a device, which is checked first"),
                (
                    "none /mnt/fast narufs scratch,memory=4G,spill=/var/tmp 0 0",
                    "scratch space: nothing of it is checked or kept",
                ),
            ],
        ),
    ],
)];

/// How mount(8) is called, which calls the program in its own way.
const MOUNT: (&str, &str) = ("mount.narufs", "mount -t narufs [-o OPTIONS] IMAGE DIR");

/// Pages to read on in, beside that of the program.
const SEE: &[(&str, &[&str])] = &[
    (
        "narufs",
        &["mount.narufs", "mkfs.narufs", "fsck.narufs", "umount.narufs", "mount", "fstab:5", "fuse:4"],
    ),
    ("mkfs", &["narufs-mount", "narufs-fsck", "mkfs"]),
    ("mount", &["narufs-umount", "narufs-fsck", "mount", "fstab:5", "systemd.unit:5"]),
    ("umount", &["narufs-mount", "umount"]),
    ("fsck", &["narufs-mount", "narufs-info", "fsck"]),
    ("trim", &["fstrim"]),
    ("stats", &["narufs-info"]),
    ("info", &["narufs-stats", "narufs-fsck"]),
    ("bench", &["narufs-compare"]),
    ("compare", &["narufs-bench"]),
    ("reproduce", &["narufs-bench"]),
];

/// Every page.
///
/// # Errors
/// Never in practice: it writes to memory.
pub fn pages() -> io::Result<Vec<Page>> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut pages = vec![page(&program, "narufs", "narufs")?];
    for command in program.get_subcommands().filter(|c| !c.is_hide_set()) {
        pages.push(page(command, &format!("narufs-{}", command.get_name()), command.get_name())?);
    }
    for (name, command) in NAMES {
        let Some(command) = program.find_subcommand(command) else { continue };
        pages.push(match name.split('.').collect::<Vec<_>>().as_slice() {
            [verb, "fuse", kind] => Page {
                file: format!("{name}.{SECTION}"),
                text: format!(".so man{SECTION}/{verb}.{kind}.{SECTION}\n").into_bytes(),
            },
            _ => page(command, name, command.get_name())?,
        });
    }
    Ok(pages)
}

/// The page `title` of a command, whose help is that of `topic`.
fn page(command: &Command, title: &str, topic: &str) -> io::Result<Page> {
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let usage = match command.get_bin_name().filter(|_| title == format!("{topic}.narufs")) {
        _ if title == MOUNT.0 => MOUNT.1.to_string(),
        Some(long) => usage.replace(long, title),
        None => usage.to_string(),
    };
    if title == MOUNT.0 {
        let is_said = |argument: &Arg| ["places", "options"].contains(&argument.get_id().as_str());
        command =
            command.mut_args(|argument| if is_said(&argument) { argument } else { argument.hide(true) });
    }
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone().display_name(title.to_string()).override_usage(usage));
    let source = format!("narufs {}", env!("CARGO_PKG_VERSION"));
    let man = man.title(title).section(SECTION).date("").source(source).manual("narufs");
    let beside = BESIDE.iter().filter(|(name, _)| *name == title).flat_map(|(_, parts)| *parts);
    let beside: Vec<&Part> = beside.collect();
    // Examples of its own are all that are of use there.
    let has_examples = beside.iter().any(|part| part.examples().is_some());
    let below = pages::below(topic).iter().filter(|part| !(has_examples && part.examples().is_some()));
    let parts: Vec<&Part> = beside.iter().copied().chain(below).collect();

    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    let mut rest = Roff::new();
    rest.control("SH", ["DESCRIPTION"]);
    rest.text([roman(format!("{about}."))]);
    for said in parts.iter().filter_map(|part| part.prose()) {
        rest.control("PP", []);
        rest.text(marked(said));
    }
    rest.to_writer(&mut text)?;
    man.render_options_section(&mut text)?;
    let mut rest = Roff::new();
    if command.has_subcommands() {
        rest.control("SH", ["COMMANDS"]);
        for command in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            rest.control("TP", []);
            rest.text([bold(format!("narufs-{}", command.get_name())), roman(format!("({SECTION})"))]);
            rest.text([roman(command.get_about().map(ToString::to_string).unwrap_or_default())]);
        }
    }
    for (heading, rows) in parts.iter().filter_map(|part| part.terms()) {
        rest.control("SH", [heading.as_str()]);
        terms(&mut rest, rows);
    }
    if let Some(said) = parts.iter().find_map(|part| part.exit_status()) {
        rest.control("SH", ["EXIT STATUS"]);
        statuses(&mut rest, said);
    }
    let examples: Vec<_> = parts.iter().filter_map(|part| part.examples()).collect();
    if !examples.is_empty() {
        rest.control("SH", ["EXAMPLES"]);
        examples.iter().for_each(|rows| command_lines(&mut rest, rows));
    }
    rest.control("SH", ["SEE ALSO"]);
    rest.text(see(topic, title));
    rest.to_writer(&mut text)?;
    Ok(Page { file: format!("{title}.{SECTION}"), text })
}

impl Part {
    /// A paragraph that is no list of exit statuses.
    fn prose(&self) -> Option<&'static str> {
        match self {
            Text(said) if !said.starts_with("Exit status") => Some(said),
            _ => None,
        }
    }

    /// That list, and after whose custom it goes.
    fn exit_status(&self) -> Option<&'static str> {
        match self {
            Text(said) => said.strip_prefix("Exit status"),
            Table(..) => None,
        }
    }

    /// Terms that are explained, with their heading.
    fn terms(&self) -> Option<(String, &'static [(&'static str, &'static str)])> {
        match self {
            Table(heading, rows) if self.examples().is_none() => {
                let heading = heading.split(" (").next().unwrap_or(heading).trim_end_matches(':');
                let heading = if heading == "Options" { "Mount options" } else { heading };
                Some((heading.to_uppercase(), rows))
            }
            _ => None,
        }
    }

    /// Command lines.
    fn examples(&self) -> Option<&'static [(&'static str, &'static str)]> {
        match self {
            Table("Examples:" | "First steps:", rows) => Some(rows),
            _ => None,
        }
    }
}

fn terms(to: &mut Roff, rows: &[(&str, &str)]) {
    for (term, said) in rows {
        to.control("TP", []);
        to.text([bold(*term)]);
        to.text(marked(said));
    }
}

/// Command lines as they are typed, and below each what it does.
fn command_lines(to: &mut Roff, rows: &[(&str, &str)]) {
    for (line, said) in rows {
        to.control("PP", []);
        to.control("EX", []);
        to.text([bold(*line)]);
        to.control("EE", []);
        if !said.is_empty() {
            to.control("RS", ["4"]);
            to.text(marked(said));
            to.control("RE", []);
        }
    }
}

/// `, as fsck(8): 0 clean, 1 ...`: one line for each number.
fn statuses(to: &mut Roff, said: &str) {
    let (custom, list) = said.split_once(": ").unwrap_or(("", said));
    if let Some(custom) = custom.strip_prefix(", as ") {
        to.text([roman(format!("As {custom} has them."))]);
    }
    let is_status = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let mut items: Vec<String> = Vec::new();
    for part in list.trim_end_matches('.').split(", ") {
        match items.last_mut() {
            Some(last) if !is_status(part) => *last += &format!(", {part}"),
            _ => items.push(part.to_string()),
        }
    }
    for item in items {
        let (number, meaning) = item.split_once(' ').unwrap_or((&item, ""));
        to.control("TP", []);
        to.text([bold(number)]);
        to.text(marked(meaning));
    }
}

/// What stands between backquotes is a command.
fn marked(said: &str) -> Vec<Inline> {
    let piece = |(n, piece): (usize, &str)| if n % 2 == 1 { bold(piece) } else { roman(piece) };
    said.split('`').enumerate().map(piece).collect()
}

fn see(topic: &str, title: &str) -> Vec<Inline> {
    let known = SEE.iter().find(|(name, _)| *name == topic).map_or(&[][..], |(_, pages)| *pages);
    let own = if title == "narufs" { None } else { Some("narufs") };
    let mut line = Vec::new();
    for page in own.into_iter().chain(known.iter().copied()) {
        let (name, section) = page.split_once(':').unwrap_or((page, SECTION));
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([italic(name), roman(format!("({section})"))]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A page without its marks, in words.
    fn words(text: &str) -> String {
        let marks = ["\\fB", "\\fI", "\\fR", "\\&", "\""];
        let plain = marks
            .iter()
            .fold(text.replace("\\-", "-").replace("\\*(Aq", "'"), |text, mark| text.replace(mark, ""));
        plain.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_command_and_name_has_a_page_that_says_what_its_help_says() {
        let pages = pages().expect("it is written to memory");
        let pages: BTreeMap<String, String> =
            pages.into_iter().map(|page| (page.file, String::from_utf8(page.text).expect("text"))).collect();
        let program = Cli::command();
        let commands = program.get_subcommands().filter(|c| !c.is_hide_set());
        let of_commands = commands.map(|c| (format!("narufs-{}", c.get_name()), c.get_name()));
        let mut expected: Vec<(String, &str)> = of_commands.collect();
        expected.push(("narufs".into(), "narufs"));
        expected.extend(NAMES.map(|(name, command)| (name.to_string(), command)));
        assert_eq!(pages.len(), expected.len());
        for (title, topic) in expected {
            let text = &pages[&format!("{title}.8")];
            if let Some(other) = text.strip_prefix(".so man8/") {
                assert!(pages.contains_key(other.trim_end()), "{title}: {other}");
                continue;
            }
            let text = words(text);
            for word in [".TH ", "SH NAME", "SH SYNOPSIS", "SH DESCRIPTION", "SH OPTIONS", "SH SEE ALSO"] {
                assert!(text.contains(word), "{title}: {word}");
            }
            assert!(text.contains(&format!("{title} - ")), "{title}: {text}");
            for part in pages::below(topic) {
                match part {
                    Text(said) if said.starts_with("Exit status") => {
                        assert!(text.contains("SH EXIT STATUS"), "{title}")
                    }
                    Text(said) => {
                        assert!(text.contains(&words(&said.replace('`', ""))), "{title}: {said}\n{text}")
                    }
                    Table("Examples:", _) if title == MOUNT.0 => {}
                    Table(_, rows) => {
                        for (term, said) in *rows {
                            let (term, said) = (words(term), words(&said.replace('`', "")));
                            assert!(text.contains(&term) && text.contains(&said), "{title}: {term}: {said}");
                        }
                    }
                }
            }
        }
    }
}
