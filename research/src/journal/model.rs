//! Creations a second on machines with many cores: with one word for all reservations, and with a ring for each lane.
//!
//! A creation is work on the core's own lines, and a visit to each line that all cores write. Such a line serves one
//! core at a time: it stays for as long as the transfer to the next one takes. That is a closed queue of as many
//! customers as there are cores; its throughput follows by mean value analysis, which takes times as exponential
//! and so is a little pessimistic about waiting, and exact about the limit.
//!
//! What it leaves out: everything else that cores share (memory bandwidth, the checkpoint, the kernel). It compares two
//! ways to order records, and does not foretell a machine.

/// A machine.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Cores that make files.
    pub cores: usize,
    /// Sockets that they are spread over.
    pub sockets: usize,
}

/// What a line costs on its way between two cores, in ns.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// Of one socket.
    pub within: f64,
    /// Of two sockets.
    pub across: f64,
}

/// The machines of the table.
pub const MACHINES: [Machine; 4] = [
    Machine { cores: 24, sockets: 1 },
    Machine { cores: 40, sockets: 2 },
    Machine { cores: 72, sockets: 2 },
    Machine { cores: 120, sockets: 2 },
];
/// Published transfers, the fast and the slow end.
pub const TRANSFERS: [Transfer; 2] =
    [Transfer { within: 50.0, across: 120.0 }, Transfer { within: 70.0, across: 200.0 }];
/// What takes the place of the add with lanes on one core, in ns, as `side` measured it: the whole record's time with
/// lanes, less that with the word and its add.
pub const LANE_ORDER: f64 = 28.0;
/// Seal words of records of two slots on one line.
const SEALS_ON_A_LINE: usize = 4;

impl Machine {
    /// The mean transfer to the next core, which is any of the others.
    pub fn mean_transfer(&self, transfer: Transfer) -> f64 {
        let elsewhere = self.cores - self.cores / self.sockets;
        let share = elsewhere as f64 / (self.cores - 1).max(1) as f64;
        transfer.within + share * (transfer.across - transfer.within)
    }
}

/// Creations a second with lines that all write, each visited once a creation. `work` is what a core does by itself
/// for one creation, in ns.
pub fn with_shared_lines(machine: Machine, work: f64, lines: usize, transfer: Transfer) -> f64 {
    let service = machine.mean_transfer(transfer);
    let (mut waiting, mut rate) = (0.0, 0.0);
    for cores in 1..=machine.cores {
        let stay = service * (1.0 + waiting);
        rate = cores as f64 / (work + lines as f64 * stay);
        waiting = rate * stay;
    }
    rate * 1e9
}

/// Creations a second with a ring for each lane; `order` takes the place of the add to the word, in ns.
pub fn with_lanes(machine: Machine, work: f64, order: f64) -> f64 {
    machine.cores as f64 / (work + order) * 1e9
}

/// Nanoseconds of a commit behind one record of each core: what it takes where all lines are the committer's own, and
/// the lines that come to it, one after the other. `[word, lanes]`: seal words stand side by side, lanes do not.
pub fn commits(machine: Machine, own: [f64; 2], transfer: Transfer) -> [f64; 2] {
    let lines = [machine.cores.div_ceil(SEALS_ON_A_LINE) + 1, machine.cores];
    [0, 1].map(|kind| own[kind] + lines[kind] as f64 * machine.mean_transfer(transfer))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Transfer = TRANSFERS[1];

    #[test]
    fn one_core_waits_for_nobody_and_many_for_the_line() {
        let alone = Machine { cores: 1, sockets: 1 };
        let rate = with_shared_lines(alone, 1930.0, 1, SLOW);
        assert!((rate - 500_000.0).abs() < 1.0, "{rate}");
        let crowd = Machine { cores: 10_000, sockets: 1 };
        let rate = with_shared_lines(crowd, 1930.0, 1, SLOW);
        assert!((rate - 1e9 / SLOW.within).abs() < 1e5, "{rate}");
    }

    #[test]
    fn more_lines_and_slower_ones_never_help() {
        for machine in MACHINES {
            let [fast, slow] = TRANSFERS.map(|transfer| with_shared_lines(machine, 2000.0, 1, transfer));
            assert!(fast >= slow && with_lanes(machine, 2000.0, LANE_ORDER) > fast);
            assert!(slow > with_shared_lines(machine, 2000.0, 2, SLOW));
        }
        for machine in MACHINES {
            let [word, lanes] = commits(machine, [0.0; 2], SLOW);
            assert!(lanes > 3.0 * word && lanes == machine.cores as f64 * machine.mean_transfer(SLOW));
        }
        let two = Machine { cores: 4, sockets: 2 };
        assert!((two.mean_transfer(SLOW) - (70.0 + 130.0 * 2.0 / 3.0)).abs() < 1e-9);
    }
}
