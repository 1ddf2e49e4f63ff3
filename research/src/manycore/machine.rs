//! Machines, and what a cache line costs on its way between two cores.

/// A machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Cores.
    pub cores: usize,
    /// Sockets that they are on, as many on each.
    pub sockets: usize,
}

/// The papers' machines.
pub const MACHINES: [(&str, Machine); 4] = [
    ("journaling", Machine { cores: 24, sockets: 2 }),
    ("checkpoint", Machine { cores: 72, sockets: 2 }),
    ("range-lock", Machine { cores: 120, sockets: 8 }),
    ("nat", Machine { cores: 40, sockets: 2 }),
];

/// The machine of a paper; where its publication says nothing of sockets, two.
pub fn of(paper: &str) -> Option<Machine> {
    MACHINES.iter().find(|(name, _)| *name == paper).map(|(_, machine)| *machine)
}

/// What it costs a core to have a line, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// It has it already.
    pub own: f64,
    /// Another core of its socket had it.
    pub within: f64,
    /// A core of another socket.
    pub across: f64,
}

/// How much longer a line takes from another socket: 50 to 120 and 70 to 200 ns are published for machines of two. A
/// machine of one socket cannot tell it.
pub const ACROSS: f64 = 2.5;

impl Costs {
    /// Of a machine of one socket, by what an add to a shared word costs one thread and two.
    pub fn fitted(own: f64, shared: f64) -> Costs {
        let within = shared.max(own);
        Costs { own, within, across: ACROSS * within }
    }

    /// Between two threads: thread n is on core n, and sockets are filled one after the other.
    pub fn between(self, machine: Machine, from: usize, to: usize) -> f64 {
        let socket = |thread: usize| thread % machine.cores / machine.cores.div_ceil(machine.sockets).max(1);
        if socket(from) == socket(to) { self.within } else { self.across }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_filled_one_after_the_other() {
        let costs = Costs::fitted(5.0, 40.0);
        let machine = Machine { cores: 120, sockets: 8 };
        assert_eq!(costs.between(machine, 0, 14), 40.0);
        assert_eq!(costs.between(machine, 14, 15), 100.0);
        assert_eq!(costs.between(machine, 0, 120), 40.0, "the core of thread 0");
        assert_eq!(Costs::fitted(5.0, 3.0).within, 5.0);
        assert_eq!(of("nat").map(|m| m.cores), Some(40));
    }
}
