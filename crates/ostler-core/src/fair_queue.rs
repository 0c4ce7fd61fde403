//! A line in which parties take turns, however many each of them sends.
//!
//! ```text
//!            join, room left ───────────────▶ waits, behind its own party
//!            join, full, a party has more ──▶ waits; the newest of the biggest party is shed
//!            join, full, none has more ─────▶ sent away
//!
//!   turns:   [ A: a1 a2 a3 ] [ B: b1 ] [ C: c1 c2 ]
//!   take_next ──▶ a1, and A goes behind C; then b1, c1, a2, c2, a3
//! ```
//!
//! Within a party it is first come, first served. A party that begins to wait
//! comes last, so with `n` parties waiting each is served every `n`-th time,
//! and somebody who is alone in its party waits for at most `n - 1` others.
//! A party that may not be served now keeps its turn.

use std::collections::VecDeque;
use std::hash::Hash;

use hashlink::LinkedHashMap;

/// Who waits for their turn: parties `K`, and what each waiter leaves behind to be found by.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    max: usize,
    /// The sum over all parties; never more than `max`.
    waiting: usize,
    /// In the order of their turns; none is empty.
    parties: LinkedHashMap<K, VecDeque<(QueueTicket, T)>>,
    last: u64,
}

/// Names one waiter. No ticket of a line is given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueTicket(u64);

/// The answer to a newcomer.
#[derive(Debug, PartialEq, Eq)]
pub enum EnqueueOutcome<T> {
    /// It waits.
    Queued(QueueTicket),
    /// It waits in the place of this one, which is to be sent away.
    Displaced(QueueTicket, T),
    /// The line is full, and no party has so many in it that one should go.
    Full,
}

impl<K: Clone + Eq + Hash, T> FairQueue<K, T> {
    /// A line for `max` waiters.
    pub fn new(max: usize) -> Self {
        Self { max, waiting: 0, parties: LinkedHashMap::new(), last: 0 }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Joins the line.
    ///
    /// In a full line somebody goes only if that makes it more even: the party
    /// that loses one keeps at least as many as the newcomer's party has then.
    pub fn enqueue(&mut self, party: K, waiter: T) -> EnqueueOutcome<T> {
        let shed = match self.waiting < self.max {
            true => None,
            false => match self.shed_for(&party) {
                Some(shed) => Some(shed),
                None => return EnqueueOutcome::Full,
            },
        };
        self.last += 1;
        let ticket = QueueTicket(self.last);
        // Not `entry`, which would take the turn of a party that waits already.
        match self.parties.get_mut(&party) {
            Some(line) => line.push_back((ticket, waiter)),
            None => drop(self.parties.insert(party, VecDeque::from([(ticket, waiter)]))),
        }
        self.waiting += 1;
        match shed {
            None => EnqueueOutcome::Queued(ticket),
            Some(shed) => EnqueueOutcome::Displaced(ticket, shed),
        }
    }

    /// Takes the newest waiter of the biggest party out, unless the newcomer's
    /// party would then be the bigger one.
    fn shed_for(&mut self, newcomer: &K) -> Option<T> {
        let mine = self.parties.get(newcomer).map_or(0, VecDeque::len);
        let (biggest, len) =
            self.parties.iter().map(|(party, line)| (party, line.len())).max_by_key(|it| it.1)?;
        if mine + 1 >= len {
            return None;
        }
        let biggest = biggest.clone();
        let (_, waiter) = self.parties.get_mut(&biggest)?.pop_back()?;
        self.waiting -= 1;
        Some(waiter)
    }

    /// Takes out whose turn it is among the parties that may be served; the others keep their turns.
    pub fn dequeue(&mut self, may_be_served: impl Fn(&K) -> bool) -> Option<(K, T)> {
        let party = self.parties.keys().find(|party| may_be_served(party))?.clone();
        let mut line = self.parties.remove(&party)?;
        let (_, waiter) = line.pop_front()?;
        self.waiting -= 1;
        if !line.is_empty() {
            self.parties.insert(party.clone(), line);
        }
        Some((party, waiter))
    }

    /// Takes out one that waits no longer; `None` if it is not in the line any more.
    pub fn remove(&mut self, party: &K, ticket: QueueTicket) -> Option<T> {
        let line = self.parties.get_mut(party)?;
        let at = line.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        let (_, waiter) = line.remove(at)?;
        if line.is_empty() {
            self.parties.remove(party);
        }
        self.waiting -= 1;
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn served(line: &mut FairQueue<char, u32>) -> Vec<u32> {
        std::iter::from_fn(|| line.dequeue(|_| true)).map(|(_, waiter)| waiter).collect()
    }

    #[test]
    fn parties_take_turns_and_within_one_it_is_first_come_first_served() {
        let mut line = FairQueue::new(10);
        for (party, waiter) in [('a', 1), ('a', 2), ('a', 3), ('b', 11), ('c', 21), ('c', 22)] {
            line.enqueue(party, waiter);
        }
        assert!(!line.is_empty());
        assert_eq!(served(&mut line), [1, 11, 21, 2, 22, 3]);
        assert!(line.is_empty());
    }

    #[test]
    fn a_full_line_sheds_the_newest_of_the_biggest_party_for_a_smaller_one() {
        let mut line = FairQueue::new(3);
        for waiter in 1..=3 {
            line.enqueue('a', waiter);
        }
        assert_eq!(line.enqueue('a', 4), EnqueueOutcome::Full, "a lone party has the whole line and no more");
        assert!(matches!(line.enqueue('b', 11), EnqueueOutcome::Displaced(_, 3)));
        assert_eq!(line.enqueue('b', 12), EnqueueOutcome::Full, "two against one would only turn it round");
        assert!(matches!(line.enqueue('c', 21), EnqueueOutcome::Displaced(_, 2)));
        assert_eq!(line.enqueue('d', 31), EnqueueOutcome::Full, "everybody has one");
        assert_eq!(served(&mut line), [1, 11, 21]);
    }

    #[test]
    fn a_party_that_may_not_be_served_keeps_its_turn() {
        let mut line = FairQueue::new(10);
        for (party, waiter) in [('a', 1), ('a', 2), ('b', 11), ('b', 12)] {
            line.enqueue(party, waiter);
        }
        assert_eq!(line.dequeue(|party| *party != 'a'), Some(('b', 11)));
        assert_eq!(line.dequeue(|_| false), None);
        assert_eq!(served(&mut line), [1, 12, 2]);
    }

    #[test]
    fn a_line_without_room_takes_nobody() {
        assert_eq!(FairQueue::new(0).enqueue('a', 1), EnqueueOutcome::Full);
    }

    #[test]
    fn who_leaves_leaves_no_trace() {
        let mut line = FairQueue::new(2);
        let EnqueueOutcome::Queued(first) = line.enqueue('a', 1) else { panic!("there is room") };
        line.enqueue('b', 11);
        assert_eq!(line.remove(&'b', first), None, "the ticket is not of that party");
        assert_eq!((line.remove(&'a', first), line.remove(&'a', first)), (Some(1), None));
        line.enqueue('a', 2);
        assert_eq!(served(&mut line), [11, 2], "its party has begun to wait anew");
    }

    /// The same in the plainest words: everybody in the order of arrival, and
    /// the parties in the order of their turns.
    #[derive(Default)]
    struct FairQueueModel {
        waiters: Vec<(u8, u32)>,
        turns: Vec<u8>,
    }

    impl FairQueueModel {
        fn waiters_of(&self, party: u8) -> Vec<u32> {
            self.waiters.iter().filter(|it| it.0 == party).map(|it| it.1).collect()
        }

        fn remove(&mut self, waiter: u32) {
            self.waiters.retain(|it| it.1 != waiter);
            let waiters = &self.waiters;
            self.turns.retain(|party| waiters.iter().any(|it| it.0 == *party));
        }

        /// True if it waits, and who had to go for it.
        fn enqueue(&mut self, max: usize, party: u8, waiter: u32) -> (bool, Option<u32>) {
            let mut shed = None;
            if self.waiters.len() >= max {
                let biggest = self.turns.iter().copied().max_by_key(|party| self.waiters_of(*party).len());
                let Some(biggest) = biggest else { return (false, None) };
                if self.waiters_of(party).len() + 1 >= self.waiters_of(biggest).len() {
                    return (false, None);
                }
                shed = self.waiters_of(biggest).last().copied();
                self.remove(shed.unwrap());
            }
            self.waiters.push((party, waiter));
            if !self.turns.contains(&party) {
                self.turns.push(party);
            }
            (true, shed)
        }

        fn dequeue(&mut self) -> Option<u32> {
            let party = *self.turns.first()?;
            let waiter = self.waiters_of(party)[0];
            self.turns.rotate_left(1);
            self.remove(waiter);
            Some(waiter)
        }
    }

    #[derive(Debug, Clone)]
    enum QueueStep {
        Enqueue(u8),
        Dequeue,
        Remove(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = QueueStep> {
        prop_oneof![
            5 => (0u8..4).prop_map(QueueStep::Enqueue),
            2 => Just(QueueStep::Dequeue),
            1 => any::<prop::sample::Index>().prop_map(QueueStep::Remove),
        ]
    }

    proptest! {
        #[test]
        fn the_line_agrees_with_the_model(max in 0usize..9, steps in prop::collection::vec(step(), 0..200)) {
            let (mut line, mut model) = (FairQueue::new(max), FairQueueModel::default());
            let mut tickets = std::collections::HashMap::new();
            for (waiter, step) in (0u32..).zip(steps) {
                match step {
                    QueueStep::Enqueue(party) => {
                        let (ticket, shed) = match line.enqueue(party, waiter) {
                            EnqueueOutcome::Queued(ticket) => (Some(ticket), None),
                            EnqueueOutcome::Displaced(ticket, shed) => (Some(ticket), Some(shed)),
                            EnqueueOutcome::Full => (None, None),
                        };
                        prop_assert_eq!((ticket.is_some(), shed), model.enqueue(max, party, waiter));
                        tickets.extend(ticket.map(|ticket| (waiter, (party, ticket))));
                    }
                    QueueStep::Dequeue => prop_assert_eq!(line.dequeue(|_| true).map(|it| it.1), model.dequeue()),
                    QueueStep::Remove(_) if model.waiters.is_empty() => {}
                    QueueStep::Remove(which) => {
                        let (_, waiter) = *which.get(&model.waiters);
                        let (party, ticket) = tickets[&waiter];
                        prop_assert_eq!(line.remove(&party, ticket), Some(waiter));
                        prop_assert_eq!(line.remove(&party, ticket), None);
                        model.remove(waiter);
                    }
                }
                prop_assert_eq!(line.len(), model.waiters.len());
                prop_assert!(line.len() <= max);
            }
        }

        #[test]
        fn with_n_parties_waiting_each_is_served_every_nth_time(
            crowd in prop::collection::vec(1usize..20, 1..8),
        ) {
            let mut line = FairQueue::new(1_000);
            for (party, &count) in crowd.iter().enumerate() {
                for _ in 0..count {
                    line.enqueue(party, party);
                }
            }
            // As long as all of them have somebody in the line.
            for round in 0..*crowd.iter().min().unwrap() {
                let mut seen: Vec<usize> = (0..crowd.len()).filter_map(|_| line.dequeue(|_| true)).map(|it| it.1).collect();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..crowd.len()).collect::<Vec<_>>(), "round {}", round);
            }
        }
    }
}
