//! `narufs stats`: the counters of a live mount.

use crate::args::Stats;
use crate::failure::Failure;
use crate::output::say;
use crate::size::Size;
use crate::snapshot::{self, number, text};
use serde_json::Value;

/// Prints them.
pub fn run(args: &Stats) -> Result<(), Failure> {
    let stats = snapshot::of(&args.dir)?;
    if args.json {
        say!("{stats:#}");
    } else {
        say!("{}", table(&stats).trim_end());
    }
    Ok(())
}

/// Where the time of checkpoint rounds went.
fn checkpoint(stats: &Value, line: &mut impl FnMut(String)) {
    let n = |path: &str| number(stats, path);
    if n("/rounds") == 0 {
        return;
    }
    line(String::new());
    line(format!(
        "{:<19} {:>10} {:>12}   {} rounds in {:.1} ms, {} batches of {} threads at the most, {} home writes",
        "checkpoint phase",
        "ms",
        "moved",
        n("/rounds"),
        n("/ns") as f64 / 1e6,
        n("/batches"),
        n("/threads"),
        n("/home_requests")
    ));
    for phase in stats["phases"].as_array().into_iter().flatten() {
        let moved = match number(phase, "/bytes") {
            0 => String::new(),
            bytes => Size(bytes).to_string(),
        };
        let ms = number(phase, "/ns") as f64 / 1e6;
        line(format!("{:<19} {ms:>10.1} {moved:>12}", text(phase, "/phase")));
    }
}

/// What servers before this one were doing when they ended.
fn ends(servers: &Value, line: &mut impl FnMut(String)) {
    let phases = servers["phases"].as_array().into_iter().flatten();
    let ends: Vec<String> = phases
        .filter(|phase| number(phase, "/ends") > 0)
        .map(|phase| format!("{} {}", text(phase, "/phase"), number(phase, "/ends")))
        .collect();
    if !ends.is_empty() {
        let left = |kind: &str| number(servers, &format!("/left/{kind}"));
        line(format!(
            "ended while    {}; of requests in service {} were taken, {} decided, {} done",
            ends.join(", "),
            left("taken"),
            left("decided"),
            left("done")
        ));
    }
}

/// What the server has given up.
fn hardening(given_up: &Value) -> Option<String> {
    if !given_up["asked"].as_bool()? {
        return Some("off: the server keeps all that who has mounted may do (harden=no)".into());
    }
    let is = |name: &str| given_up[name] == true;
    let landlock = number(given_up, "/landlock");
    let mut parts: Vec<(bool, String)> = vec![
        (is("no_capabilities"), "no capabilities".into()),
        (is("no_new_privileges"), "no new privileges".into()),
        (landlock > 0, format!("files by Landlock {landlock}")),
        (is("seccomp"), "calls by seccomp".into()),
    ];
    let missing: Vec<String> = parts.extract_if(.., |(done, _)| !*done).map(|(_, part)| part).collect();
    let done: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    let mut said = done.join(", ");
    if !missing.is_empty() {
        said.push_str(&format!(
            "; this kernel cannot: {}",
            missing.join(", ").replace("Landlock 0", "Landlock")
        ));
    }
    Some(format!("{said}; process {} mounts and unmounts", number(given_up, "/broker_pid")))
}

/// Requests of the kernel, the most frequent first.
fn requests(stats: &Value, line: &mut impl FnMut(String)) {
    let counts = stats["requests"].as_object().into_iter().flatten();
    let mut counts: Vec<(&str, u64, u64)> = counts
        .map(|(name, sent)| {
            let awaited = stats["requests_awaited"][name].as_u64().unwrap_or(0);
            (name.as_str(), sent.as_u64().unwrap_or(0), awaited)
        })
        .filter(|(_, sent, _)| *sent > 0)
        .collect();
    // By name where they are as many, as they come.
    counts.sort_by_key(|(_, sent, _)| std::cmp::Reverse(*sent));
    let all = counts.iter().fold(("all", 0, 0), |all, count| (all.0, all.1 + count.1, all.2 + count.2));
    line(String::new());
    line(format!("{:<19} {:>10} {:>12}", "requests", "sent", "waited for"));
    for (name, sent, awaited) in counts.into_iter().chain([all]) {
        line(format!("{name:<19} {sent:>10} {awaited:>12}"));
    }
}

fn table(stats: &Value) -> String {
    let mut out = String::new();
    let mut line = |s: String| {
        out.push_str(s.trim_end());
        out.push('\n');
    };
    let n = |path: &str| number(stats, path);
    let transport = match text(stats, "/transport") {
        "uring" => "io_uring",
        _ => "/dev/fuse",
    };
    line(format!("server         process {}, asked through {transport}", n("/server_pid")));
    line(match n("/supervisor_pid") {
        0 => "supervisor     none: the mount ends with its server".into(),
        pid if n("/incarnation") == 0 => {
            format!("supervisor     process {pid}, which had to start one server")
        }
        pid => format!(
            "supervisor     process {pid}, which has started {} servers; the longest pause was {:.0} ms",
            n("/incarnation") + 1,
            n("/longest_pause_ns") as f64 / 1e6
        ),
    });
    ends(&stats["servers"], &mut line);
    if let Some(said) = hardening(&stats["hardening"]) {
        line(format!("hardening      {said}"));
    }
    if let Some(why) = stats["read_only"].as_str() {
        line(format!("read-only      {why}"));
    }
    let block = n("/room/block_size");
    line(format!(
        "room           {} free of {}",
        Size(n("/room/blocks_free") * block),
        Size(n("/room/blocks") * block)
    ));
    if stats["scratch"] == true {
        line("durability     none: scratch space, nothing is left of it after the unmount".into());
    }
    let journal = match text(stats, "/journal_kind") {
        "emulated" => " (its journal is emulated: fsync survives the server's end, not the machine's)",
        _ => "",
    };
    let ms = |path: &str| n(path) as f64 / 1e6;
    let window = match stats["window_ns"].as_u64() {
        Some(_) => {
            format!(", power within {} ms (now {:.1} behind)", ms("/window_ns"), ms("/journal/power_lag_ns"))
        }
        None if n("/journal/power_lag_ns") > 0 => {
            format!(", power {:.1} ms behind", ms("/journal/power_lag_ns"))
        }
        None => String::new(),
    };
    if stats["durability"].is_string() {
        line(format!(
            "durability     {}{journal}{window}, {} not yet safe from a loss of power",
            text(stats, "/durability"),
            Size(n("/power_lag_bytes"))
        ));
    }
    if stats["journal"].is_object() {
        let slots = n("/journal/ring_slots").max(1);
        let used = n("/journal/tail").saturating_sub(n("/journal/head"));
        line(format!(
            "journal        {} records, {} commits (served {} more), {} laps, {} % full",
            n("/journal/records"),
            n("/journal/commits"),
            n("/journal/coalesced"),
            n("/journal/laps"),
            used * 100 / slots
        ));
    }
    line(format!(
        "page cache     {} of {} in use, {} dirty, {} pages evicted, {} misses",
        Size((n("/data/cache/frames") - n("/data/cache/free").min(n("/data/cache/frames"))) * block),
        Size(n("/data/cache/frames") * block),
        Size(n("/data/cache/dirty") * block),
        n("/data/cache/evicted"),
        n("/data/misses")
    ));
    line(format!(
        "fsync          {} absorbed by the journal, {} waited for data to go home",
        n("/data/syncs_absorbed"),
        n("/data/syncs_home")
    ));
    line(format!(
        "metadata       {} cached, {} dirty",
        Size(n("/metadata_pages") * block),
        Size(n("/metadata_dirty") * block)
    ));
    line(String::new());
    line(format!(
        "{:<18} {:>10} {:>12} {:>10} {:>12}",
        "device I/O by cause", "reads", "read", "writes", "written"
    ));
    for cause in stats["device"].as_array().into_iter().flatten() {
        if number(cause, "/reads") + number(cause, "/writes") == 0 {
            continue;
        }
        line(format!(
            "{:<19} {:>10} {:>12} {:>10} {:>12}",
            text(cause, "/cause"),
            number(cause, "/reads"),
            Size(number(cause, "/read_bytes")).to_string(),
            number(cause, "/writes"),
            Size(number(cause, "/write_bytes")).to_string()
        ));
    }
    line(format!("{:<19} {:>10}", "flushes", n("/flushes")));
    checkpoint(&stats["checkpoint"], &mut line);
    requests(stats, &mut line);
    line(String::new());
    line(format!("{:<19} {:>10} {:>12}", "waits by lock class", "waits", "ms"));
    for class in stats["locks"].as_array().into_iter().flatten() {
        line(format!(
            "{:<19} {:>10} {:>12.1}",
            text(class, "/class"),
            number(class, "/waits"),
            number(class, "/wait_ns") as f64 / 1e6
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_servers_have_ended_is_shown_if_any_has() {
        let phases = serde_json::json!([{"phase": "starting", "ends": 0}, {"phase": "serving", "ends": 7}]);
        let servers = serde_json::json!({"phases": phases, "left": {"taken": 3, "decided": 2, "done": 1}});
        let shown = table(&serde_json::json!({"servers": servers}));
        assert!(
            shown.contains("while    serving 7; of requests in service 3 were taken, 2 decided, 1 done"),
            "{shown}"
        );
        assert!(!table(&serde_json::json!({"servers": {"phases": []}})).contains("ended while"));
    }

    #[test]
    fn what_is_given_up_is_shown_and_what_could_not_be() {
        let shown = |given_up| hardening(&given_up).expect("a line");
        assert!(shown(serde_json::json!({"asked": false})).starts_with("off"));
        let mut all = serde_json::json!({
            "asked": true, "no_capabilities": true, "no_new_privileges": true, "landlock": 7, "seccomp": true,
            "broker_pid": 12,
        });
        assert_eq!(
            shown(all.clone()),
            "no capabilities, no new privileges, files by Landlock 7, calls by seccomp; process 12 mounts and unmounts"
        );
        all["landlock"] = 0.into();
        assert!(shown(all).contains("seccomp; this kernel cannot: files by Landlock; process 12"));
        assert_eq!(hardening(&Value::Null), None, "an earlier server");
    }

    #[test]
    fn requests_are_shown_the_most_frequent_first_without_zeros() {
        let stats = serde_json::json!({
            "requests": {"FORGET": 30, "GETATTR": 7, "LOOKUP": 1000, "MKDIR": 0, "WRITE": 30},
            "requests_awaited": {"FORGET": 0, "GETATTR": 7, "LOOKUP": 1000, "MKDIR": 0, "WRITE": 21},
        });
        let shown = table(&stats);
        let (_, below) = shown.split_once("requests ").expect("a table of them");
        let rows: Vec<Vec<&str>> = below
            .lines()
            .take_while(|line| !line.is_empty())
            .map(|line| line.split_whitespace().collect())
            .collect();
        let expected = [
            vec!["sent", "waited", "for"],
            vec!["LOOKUP", "1000", "1000"],
            vec!["FORGET", "30", "0"],
            vec!["WRITE", "30", "21"],
            vec!["GETATTR", "7", "7"],
            vec!["all", "1067", "1028"],
        ];
        assert_eq!(rows, expected);
    }
}
