//! Fair queue: parties take turns, however many waiters each of them has.
//!
//! ```text
//!            enqueue, room left ───────────────▶ Queued, behind its own party
//!            enqueue, full, a party has more ──▶ Displaced: the newest waiter of the biggest party
//!            enqueue, full, none has more ─────▶ Full
//!
//!   turns:   [ A: a1 a2 a3 ] [ B: b1 ] [ C: c1 c2 ]
//!   dequeue ──▶ a1, and A goes behind C; then b1, c1, a2, c2, a3
//! ```
//!
//! Within a party the order is first come, first served. A party that begins to wait comes last, so with `n`
//! parties waiting each is served every `n`-th time, and the only waiter of a party waits for at most `n - 1`
//! others. A party that may not be served now keeps its turn.

use std::collections::VecDeque;
use std::hash::Hash;

use hashlink::LinkedHashMap;

/// Waiters by party `K`, each with a value `T`.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    max: usize,
    /// The sum over all parties; never more than `max`.
    waiting: usize,
    /// In the order of their turns; none is empty.
    parties: LinkedHashMap<K, VecDeque<(QueueTicket, T)>>,
    last: u64,
}

/// Id of one waiter. No ticket of a queue is issued twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueTicket(u64);

/// Result of enqueueing a waiter.
#[derive(Debug, PartialEq, Eq)]
pub enum EnqueueOutcome<T> {
    /// It waits.
    Queued(QueueTicket),
    /// It waits in place of this waiter, which is to be refused.
    Displaced(QueueTicket, T),
    /// The queue is full, and no party has enough waiters to lose one.
    Full,
}

impl<K: Clone + Eq + Hash, T> FairQueue<K, T> {
    /// Creates a queue for `max` waiters.
    pub fn new(max: usize) -> Self {
        Self { max, waiting: 0, parties: LinkedHashMap::new(), last: 0 }
    }

    /// Returns the number of waiters.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds a waiter.
    ///
    /// In a full queue a waiter is displaced only if that makes the queue more even: the party that loses one
    /// keeps at least as many as the newcomer's party then has.
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
        // Not `entry`, which would change the turn of a party that waits already.
        match self.parties.get_mut(&party) {
            Some(queue) => queue.push_back((ticket, waiter)),
            None => drop(self.parties.insert(party, VecDeque::from([(ticket, waiter)]))),
        }
        self.waiting += 1;
        match shed {
            None => EnqueueOutcome::Queued(ticket),
            Some(shed) => EnqueueOutcome::Displaced(ticket, shed),
        }
    }

    /// Displaces the newest waiter of the biggest party, unless the newcomer's party would then be the bigger
    /// one.
    fn shed_for(&mut self, newcomer: &K) -> Option<T> {
        let own_count = self.parties.get(newcomer).map_or(0, VecDeque::len);
        let (biggest, len) =
            self.parties.iter().map(|(party, queue)| (party, queue.len())).max_by_key(|it| it.1)?;
        if own_count + 1 >= len {
            return None;
        }
        let biggest = biggest.clone();
        let (_, waiter) = self.parties.get_mut(&biggest)?.pop_back()?;
        self.waiting -= 1;
        Some(waiter)
    }

    /// Removes the next waiter among the parties that may be served; the others keep their turns.
    pub fn dequeue(&mut self, may_be_served: impl Fn(&K) -> bool) -> Option<(K, T)> {
        let party = self.parties.keys().find(|party| may_be_served(party))?.clone();
        let mut queue = self.parties.remove(&party)?;
        let (_, waiter) = queue.pop_front()?;
        self.waiting -= 1;
        if !queue.is_empty() {
            self.parties.insert(party.clone(), queue);
        }
        Some((party, waiter))
    }

    /// Removes a waiter that stops waiting; `None` if it is no longer in the queue.
    pub fn remove(&mut self, party: &K, ticket: QueueTicket) -> Option<T> {
        let queue = self.parties.get_mut(party)?;
        let at = queue.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        let (_, waiter) = queue.remove(at)?;
        if queue.is_empty() {
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

    fn served(queue: &mut FairQueue<char, u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.dequeue(|_| true)).map(|(_, waiter)| waiter).collect()
    }

    #[test]
    fn parties_take_turns_and_within_one_it_is_first_come_first_served() {
        let mut queue = FairQueue::new(10);
        for (party, waiter) in [('a', 1), ('a', 2), ('a', 3), ('b', 11), ('c', 21), ('c', 22)] {
            queue.enqueue(party, waiter);
        }
        assert!(!queue.is_empty());
        assert_eq!(served(&mut queue), [1, 11, 21, 2, 22, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_full_line_sheds_the_newest_of_the_biggest_party_for_a_smaller_one() {
        let mut queue = FairQueue::new(3);
        for waiter in 1..=3 {
            queue.enqueue('a', waiter);
        }
        assert_eq!(
            queue.enqueue('a', 4),
            EnqueueOutcome::Full,
            "a lone party has the whole line and no more"
        );
        assert!(matches!(queue.enqueue('b', 11), EnqueueOutcome::Displaced(_, 3)));
        assert_eq!(queue.enqueue('b', 12), EnqueueOutcome::Full, "two against one would only turn it round");
        assert!(matches!(queue.enqueue('c', 21), EnqueueOutcome::Displaced(_, 2)));
        assert_eq!(queue.enqueue('d', 31), EnqueueOutcome::Full, "everybody has one");
        assert_eq!(served(&mut queue), [1, 11, 21]);
    }

    #[test]
    fn a_party_that_may_not_be_served_keeps_its_turn() {
        let mut queue = FairQueue::new(10);
        for (party, waiter) in [('a', 1), ('a', 2), ('b', 11), ('b', 12)] {
            queue.enqueue(party, waiter);
        }
        assert_eq!(queue.dequeue(|party| *party != 'a'), Some(('b', 11)));
        assert_eq!(queue.dequeue(|_| false), None);
        assert_eq!(served(&mut queue), [1, 12, 2]);
    }

    #[test]
    fn a_line_without_room_takes_nobody() {
        assert_eq!(FairQueue::new(0).enqueue('a', 1), EnqueueOutcome::Full);
    }

    #[test]
    fn who_leaves_leaves_no_trace() {
        let mut queue = FairQueue::new(2);
        let EnqueueOutcome::Queued(first) = queue.enqueue('a', 1) else { panic!("there is room") };
        queue.enqueue('b', 11);
        assert_eq!(queue.remove(&'b', first), None, "the ticket is not of that party");
        assert_eq!((queue.remove(&'a', first), queue.remove(&'a', first)), (Some(1), None));
        queue.enqueue('a', 2);
        assert_eq!(served(&mut queue), [11, 2], "its party has begun to wait anew");
    }

    /// Reference model: all waiters in the order of arrival, and the parties in the order of their turns.
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

        /// Returns whether the waiter is queued, and the displaced waiter.
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
            let (mut queue, mut model) = (FairQueue::new(max), FairQueueModel::default());
            let mut tickets = std::collections::HashMap::new();
            for (waiter, step) in (0u32..).zip(steps) {
                match step {
                    QueueStep::Enqueue(party) => {
                        let (ticket, shed) = match queue.enqueue(party, waiter) {
                            EnqueueOutcome::Queued(ticket) => (Some(ticket), None),
                            EnqueueOutcome::Displaced(ticket, shed) => (Some(ticket), Some(shed)),
                            EnqueueOutcome::Full => (None, None),
                        };
                        prop_assert_eq!((ticket.is_some(), shed), model.enqueue(max, party, waiter));
                        tickets.extend(ticket.map(|ticket| (waiter, (party, ticket))));
                    }
                    QueueStep::Dequeue => prop_assert_eq!(queue.dequeue(|_| true).map(|it| it.1), model.dequeue()),
                    QueueStep::Remove(_) if model.waiters.is_empty() => {}
                    QueueStep::Remove(which) => {
                        let (_, waiter) = *which.get(&model.waiters);
                        let (party, ticket) = tickets[&waiter];
                        prop_assert_eq!(queue.remove(&party, ticket), Some(waiter));
                        prop_assert_eq!(queue.remove(&party, ticket), None);
                        model.remove(waiter);
                    }
                }
                prop_assert_eq!(queue.len(), model.waiters.len());
                prop_assert!(queue.len() <= max);
            }
        }

        #[test]
        fn with_n_parties_waiting_each_is_served_every_nth_time(
            crowd in prop::collection::vec(1usize..20, 1..8),
        ) {
            let mut queue = FairQueue::new(1_000);
            for (party, &count) in crowd.iter().enumerate() {
                for _ in 0..count {
                    queue.enqueue(party, party);
                }
            }
            // As long as every party has a waiter in the queue.
            for round in 0..*crowd.iter().min().unwrap() {
                let mut seen: Vec<usize> = (0..crowd.len()).filter_map(|_| queue.dequeue(|_| true)).map(|it| it.1).collect();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..crowd.len()).collect::<Vec<_>>(), "round {}", round);
            }
        }
    }
}
