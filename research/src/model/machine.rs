//! A machine with more cores than the one at hand: where its threads run, and what a cache line costs between two cores.

/// What a line costs on its way between two cores, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Of one socket.
    pub within: f64,
    /// Of two sockets.
    pub across: f64,
}

/// Cores on sockets. Thread `n` runs on core `n`: the first socket fills before the second, as papers pin theirs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Cores of each socket.
    pub per_socket: usize,
    /// What their lines cost.
    pub transfer: Transfer,
}

impl Machine {
    /// One socket of any number of cores.
    pub fn of_one_socket(within: f64) -> Machine {
        Machine { per_socket: usize::MAX, transfer: Transfer { within, across: within } }
    }

    /// Nanoseconds until `to` has a line that `from` has written last.
    pub fn cost(&self, from: usize, to: usize) -> f64 {
        match () {
            () if from == to => 0.0,
            () if from / self.per_socket == to / self.per_socket => self.transfer.within,
            () => self.transfer.across,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_costs_nothing_at_home_and_most_between_sockets() {
        let machine = Machine { per_socket: 2, transfer: Transfer { within: 50.0, across: 120.0 } };
        assert_eq!([machine.cost(1, 1), machine.cost(0, 1), machine.cost(1, 2)], [0.0, 50.0, 120.0]);
        assert_eq!(Machine::of_one_socket(60.0).cost(3, 119), 60.0);
    }
}
