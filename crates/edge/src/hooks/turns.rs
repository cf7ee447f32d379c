//! Admission of hook queries: bounded concurrency, a bounded queue, and fair order between networks
//! and between subscribers of a network.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::config::Network;
use crate::limits::Origin;
use crate::sync::lock;

/// Maximum queued queries. When the queue is full, the network with most queued queries loses one.
pub(super) const MAX_WAITING: usize = 1_024;

/// The client that causes a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Asker {
    network: Network,
    subscriber: Network,
    /// Trusted clients may take all turns. Others may take a quarter per network, and half of that
    /// per subscriber, so that neighbours of a flood need not wait for it.
    is_trusted: bool,
}

impl Asker {
    pub(crate) fn new(address: IpAddr, is_trusted: bool) -> Self {
        let Origin { address, network } = Origin::of(address);
        Self { network, subscriber: address, is_trusted }
    }

    /// Returns the maximum turns of its network and of itself, out of `all`.
    fn most(self, all: usize) -> [usize; 2] {
        let share = (all / 4).max(1);
        if self.is_trusted { [all, all] } else { [share, (share / 2).max(1)] }
    }
}

/// Queries of one network.
#[derive(Debug, Default)]
struct NetworkQueries {
    asking: usize,
    /// Running queries by subscriber, without zeros.
    asking_of: HashMap<Network, usize>,
    waiting: usize,
    /// Non-empty queues of the subscribers, in service order.
    lines: VecDeque<(Asker, VecDeque<Ticket>)>,
}

impl NetworkQueries {
    fn may_ask(&self, asker: Asker, all: usize) -> bool {
        let [of_network, of_subscriber] = asker.most(all);
        let own = self.asking_of.get(&asker.subscriber).copied().unwrap_or(0);
        self.asking < of_network && own < of_subscriber
    }

    fn end(&mut self, subscriber: Network) {
        self.asking -= 1;
        if let Entry::Occupied(mut own) = self.asking_of.entry(subscriber) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

#[derive(Debug)]
struct Ticket {
    id: u64,
    bell: oneshot::Sender<Turn>,
}

#[derive(Debug, Default)]
struct TurnTable {
    next: u64,
    asking: usize,
    waiting: usize,
    /// Maximum concurrent queries in the latest configuration.
    all: usize,
    groups: HashMap<Network, NetworkQueries>,
    /// Networks with queued queries, in service order.
    order: VecDeque<Network>,
}

/// Admission of one kind of query.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<TurnTable>>);

/// Permission to send a query. Dropping it admits the next.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    asker: Asker,
}

/// The queue is full, or was filled by networks with fewer queued queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueFull;

impl Turns {
    /// Waits for a turn, with at most `all` queries at once.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) async fn take(&self, asker: Asker, all: usize) -> Result<Turn, QueueFull> {
        let (bell, granted) = oneshot::channel();
        let evicted;
        let id = {
            let mut table = lock(&self.0);
            table.all = all;
            evicted = table.make_room(asker)?;
            table.push(asker, bell)
        };
        // Dropping its bell rejects it.
        drop(evicted);
        // Removes the ticket if the caller stops waiting.
        let _waiting = WaitGuard { turns: self, asker, id };
        self.hand_out();
        granted.await.map_err(|_| QueueFull)
    }

    /// Grants free turns to queued queries.
    fn hand_out(&self) {
        loop {
            let Some((asker, bell)) = lock(&self.0).pick() else { return };
            // A turn without receiver is released by its drop.
            let _ = bell.send(Turn { turns: self.clone(), asker });
        }
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize, usize) {
        let table = lock(&self.0);
        (table.asking, table.waiting, table.groups.len())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut table = lock(&self.turns.0);
        table.asking -= 1;
        if let Some(group) = table.groups.get_mut(&self.asker.network) {
            group.end(self.asker.subscriber);
        }
        table.tidy(self.asker.network);
        drop(table);
        self.turns.hand_out();
    }
}

struct WaitGuard<'a> {
    turns: &'a Turns,
    asker: Asker,
    id: u64,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        // Drop the bell outside the lock: it may hold a turn.
        let removed = lock(&self.turns.0).remove(self.asker, self.id);
        drop(removed);
    }
}

impl TurnTable {
    /// Makes space in the queue for a query of this network. Returns the evicted query: the newest
    /// of the largest subscriber in the largest network.
    fn make_room(&mut self, asker: Asker) -> Result<Option<Ticket>, QueueFull> {
        let network = asker.network;
        let group = self.groups.get(&network);
        let may_ask = group.is_none_or(|group| group.may_ask(asker, self.all));
        let is_next = self.asking < self.all && may_ask;
        if is_next || self.waiting < MAX_WAITING {
            return Ok(None);
        }
        let waiting = |network: &Network| self.groups.get(network).map_or(0, |group| group.waiting);
        let longest = self.order.iter().copied().max_by_key(|n| waiting(n)).ok_or(QueueFull)?;
        let own = waiting(&network);
        // A newcomer evicts only from a larger network, or within its own from a larger subscriber.
        if longest != network && waiting(&longest) <= own + 1 {
            return Err(QueueFull);
        }
        let group = self.groups.get(&longest).ok_or(QueueFull)?;
        let line = group.lines.iter().max_by_key(|(_, line)| line.len()).ok_or(QueueFull)?;
        let own_line = group.lines.iter().find(|(other, _)| *other == asker);
        if longest == network && line.1.len() <= own_line.map_or(0, |(_, line)| line.len()) + 1 {
            return Err(QueueFull);
        }
        let (asker, id) = (line.0, line.1.back().map(|ticket| ticket.id).ok_or(QueueFull)?);
        Ok(self.remove(asker, id))
    }

    fn push(&mut self, asker: Asker, bell: oneshot::Sender<Turn>) -> u64 {
        let id = self.next;
        self.next += 1;
        let group = self.groups.entry(asker.network).or_default();
        if group.waiting == 0 {
            self.order.push_back(asker.network);
        }
        group.waiting += 1;
        self.waiting += 1;
        let ticket = Ticket { id, bell };
        match group.lines.iter_mut().find(|(other, _)| *other == asker) {
            Some((_, line)) => line.push_back(ticket),
            None => group.lines.push_back((asker, [ticket].into())),
        }
        id
    }

    /// Takes the next admissible query, if any.
    fn pick(&mut self) -> Option<(Asker, oneshot::Sender<Turn>)> {
        if self.asking >= self.all {
            return None;
        }
        for _ in 0..self.order.len() {
            let network = self.order.pop_front()?;
            self.order.push_back(network);
            let all = self.all;
            let Some(group) = self.groups.get_mut(&network) else { continue };
            let next = group.lines.iter().position(|(asker, _)| group.may_ask(*asker, all));
            let Some(index) = next else { continue };
            let Some((asker, mut line)) = group.lines.remove(index) else { continue };
            let Some(ticket) = line.pop_front() else { continue };
            if !line.is_empty() {
                group.lines.push_back((asker, line));
            }
            group.asking += 1;
            *group.asking_of.entry(asker.subscriber).or_default() += 1;
            group.waiting -= 1;
            self.asking += 1;
            self.waiting -= 1;
            self.tidy(network);
            return Some((asker, ticket.bell));
        }
        None
    }

    fn remove(&mut self, asker: Asker, id: u64) -> Option<Ticket> {
        let group = self.groups.get_mut(&asker.network)?;
        let at = group.lines.iter().position(|(other, _)| *other == asker)?;
        let line = &mut group.lines[at].1;
        let found = line.iter().position(|ticket| ticket.id == id)?;
        let ticket = line.remove(found);
        if line.is_empty() {
            group.lines.remove(at);
        }
        group.waiting -= 1;
        self.waiting -= 1;
        self.tidy(asker.network);
        ticket
    }

    /// Removes a network without queries.
    fn tidy(&mut self, network: Network) {
        let Some(group) = self.groups.get(&network) else { return };
        if group.waiting == 0 {
            self.order.retain(|other| *other != network);
            if group.asking == 0 {
                self.groups.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{JoinHandle, yield_now};

    use super::*;

    const ALL: usize = 8;

    fn ask(turns: &Turns, address: [u8; 4]) -> JoinHandle<Result<Turn, QueueFull>> {
        let turns = turns.clone();
        let asker = Asker::new(address.into(), address[0] == 10);
        tokio::spawn(async move { turns.take(asker, ALL).await })
    }

    async fn settle() {
        for _ in 0..50 {
            yield_now().await;
        }
    }

    async fn answer(asked: JoinHandle<Result<Turn, QueueFull>>) -> Option<Turn> {
        asked.await.expect("no panic").ok()
    }

    #[tokio::test]
    async fn network_takes_a_quarter_of_the_turns_and_a_trusted_one_all() {
        let turns = Turns::default();
        let flood: Vec<_> = (0..50).map(|n| ask(&turns, [192, 0, 2, n])).collect();
        settle().await;
        assert_eq!(turns.counts(), (2, 48, 1));
        let other = ask(&turns, [198, 51, 100, 1]);
        settle().await;
        assert!(other.is_finished(), "another network asks at once");
        let trusted: Vec<_> = (0..9).map(|_| ask(&turns, [10, 0, 0, 1])).collect();
        settle().await;
        assert_eq!(turns.counts(), (ALL, 52, 3));
        for asked in flood.iter().chain(&trusted).chain([&other]) {
            asked.abort();
        }
        for asked in flood.into_iter().chain(trusted).chain([other]) {
            drop(asked.await);
        }
        settle().await;
        assert_eq!(turns.counts(), (0, 0, 0), "nothing is left behind");
    }

    #[tokio::test]
    async fn flood_leaves_turns_to_its_neighbours() {
        let turns = Turns::default();
        let flood: Vec<_> = (0..200).map(|_| ask(&turns, [192, 0, 2, 9])).collect();
        settle().await;
        assert_eq!(turns.counts(), (1, 199, 1), "half of the network's two turns");
        let honest = ask(&turns, [192, 0, 2, 2]);
        settle().await;
        assert!(honest.is_finished(), "it has the other half");
        flood.iter().for_each(JoinHandle::abort);
    }

    #[tokio::test]
    async fn subscribers_of_a_network_take_turns() {
        let turns = Turns::default();
        let mut flood: VecDeque<_> =
            (0..200).map(|n| ask(&turns, [192, 0, 2, 8 + n % 2])).collect();
        settle().await;
        assert_eq!(turns.counts(), (2, 198, 1));
        let honest = ask(&turns, [192, 0, 2, 2]);
        settle().await;
        assert!(!honest.is_finished());
        // It waits for a few turns, not for all earlier queries.
        for _ in 0..3 {
            drop(answer(flood.pop_front().expect("one")).await);
            settle().await;
        }
        assert!(honest.is_finished());
    }

    #[tokio::test]
    async fn full_queue_evicts_from_the_largest_network() {
        let turns = Turns::default();
        let flood: Vec<_> = (0..MAX_WAITING + 12).map(|_| ask(&turns, [192, 0, 2, 9])).collect();
        settle().await;
        assert_eq!(turns.counts(), (1, MAX_WAITING, 1));
        let ended = || flood.iter().filter(|asked| asked.is_finished()).count();
        assert_eq!(ended(), 1 + 11, "one runs, eleven are rejected");
        // Seven other networks fill the turns. Two more are queued in places of the flood.
        let others: Vec<_> = (0..9).map(|n| ask(&turns, [198, 51, 100 + n, 1])).collect();
        settle().await;
        assert_eq!(others.iter().filter(|asked| asked.is_finished()).count(), 7);
        assert_eq!(turns.counts(), (ALL, MAX_WAITING, 10));
        assert_eq!(ended(), 1 + 11 + 2);
    }
}
