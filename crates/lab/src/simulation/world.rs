//! All flows and their path on one virtual clock, which jumps from event to event.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};

use links::Passage;
use quic::Addresses;
use units::{Ecn, Timestamp};

use super::flow::{Flow, Stopwatch};
use super::outcome::{RunOutcome, SenderSample};
use super::scenario::Scenario;
use super::wire::{Wire, WireDatagram, poll};
use crate::error::{RunError, ValueError};
use crate::event_log::EventLog;
use crate::server::Sent;

/// Addresses of the first client and of its rival.
const CLIENTS: [[Ipv4Addr; 2]; 2] = [
    [Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(192, 0, 2, 4)],
    [Ipv4Addr::new(192, 0, 2, 3), Ipv4Addr::new(192, 0, 2, 5)],
];
/// Steps without clock progress after which a run counts as stuck.
const MAX_IDLE_STEPS: u32 = 200_000;

/// Samples the first flow periodically.
struct Sampler {
    every: Duration,
    at: Timestamp,
    samples: Vec<SenderSample>,
}

pub(super) struct World<'a> {
    scenario: &'a Scenario,
    log: EventLog,
    /// The first flow, and its rival if any.
    flows: Vec<Flow>,
    wire: Wire,
    /// Times the clients' code.
    stopwatch: Stopwatch,
    sampler: Option<Sampler>,
    now: Timestamp,
    /// Steps since the clock last advanced.
    idle_steps: u32,
}

impl<'a> World<'a> {
    /// Builds all flows.
    ///
    /// # Errors
    /// The client does not support the request.
    pub(super) fn new(scenario: &'a Scenario) -> Result<Self, ValueError> {
        let log = EventLog::default();
        let mut flows = vec![Flow::new(scenario.clone(), CLIENTS[0], &log)?];
        if let Some(rival) = scenario.of_rival() {
            flows.push(Flow::new(rival, CLIENTS[1], &log)?);
        }
        Ok(Self {
            scenario,
            log,
            flows,
            wire: Wire::new(&scenario.path, scenario.seed),
            stopwatch: Stopwatch { is_on: scenario.time_client, total: Duration::ZERO },
            sampler: scenario.sample_every.map(|every| Sampler {
                every,
                at: Timestamp::ZERO,
                samples: Vec::new(),
            }),
            now: Timestamp::ZERO,
            idle_steps: 0,
        })
    }

    /// Lets the ends act, advances the clock to the next event, and handles everything due. Returns
    /// false if all flows are finished or no event remains before the limit.
    ///
    /// # Errors
    /// The clock is stuck.
    pub(super) fn step(&mut self) -> Result<bool, RunError> {
        for flow in &mut self.flows {
            flow.act(self.now, &mut self.wire, &mut self.stopwatch);
        }
        self.sample();
        let next = self.next_event().filter(|&at| at <= self.end());
        let (Some(next), false) = (next, self.flows.iter().all(Flow::is_over)) else {
            return Ok(false);
        };
        self.advance(next)?;
        if self.now >= Timestamp::ZERO + self.scenario.measure_from {
            self.flows.iter_mut().for_each(|flow| flow.begin_measuring(self.now));
        }
        for flow in &mut self.flows {
            flow.fire_timers(self.now, &mut self.stopwatch);
        }
        self.deliver_up();
        self.deliver_down();
        Ok(true)
    }

    fn end(&self) -> Timestamp {
        Timestamp::ZERO + self.scenario.limit
    }

    fn sample(&mut self) {
        let now = self.now;
        let Some(sampler) = self.sampler.as_mut().filter(|sampler| now >= sampler.at) else {
            return;
        };
        sampler.at += sampler.every;
        let flow = &mut self.flows[0];
        if let Some(connection) = flow.server.connection() {
            sampler.samples.push(SenderSample {
                at: now,
                window: connection.window(),
                in_flight: connection.in_flight(),
                pacing_rate: connection.pacing_rate(),
                received: flow.client.download().received,
                queued: self.wire.path.down.queued_bytes(),
            });
        }
    }

    fn next_event(&self) -> Option<Timestamp> {
        let earlier = |next: Option<Timestamp>, at: Option<Timestamp>| match (next, at) {
            (Some(next), Some(at)) => Some(next.min(at)),
            (next, at) => next.or(at),
        };
        let timers = |next, flow: &Flow| earlier(earlier(next, flow.server_at), flow.client_at);
        self.flows.iter().fold(self.wire.path.next_event(), timers)
    }

    /// Advances the clock. It is an error if the ends keep triggering each other at the same time.
    fn advance(&mut self, next: Timestamp) -> Result<(), RunError> {
        self.idle_steps = if next > self.now { 0 } else { self.idle_steps + 1 };
        if self.idle_steps > MAX_IDLE_STEPS {
            return Err(RunError::Stuck {
                at: self.now,
                seed: self.scenario.seed,
                links: self.wire.path.next_event(),
                server: self.flows[0].server_at,
                client: self.flows[0].client_at,
            });
        }
        self.now = self.now.max(next);
        Ok(())
    }

    /// Delivers arrived datagrams to the server.
    fn deliver_up(&mut self) {
        let now = self.now;
        while let Some(WireDatagram { client, ecn, mut data }) = poll(&mut self.wire.path.up, now) {
            let ip = client.ip();
            if let Some(flow) = self.flows.iter_mut().find(|flow| flow.is_at(*ip)) {
                let from = Addresses::of(SocketAddr::V4(client));
                let reply = flow.server.on_datagram(now, from, ecn, &mut data);
                if let Some(reply) = reply {
                    let passage = Passage::Ordinary;
                    let reply = Sent { ecn: Ecn::NotEct, data: reply, passage };
                    self.wire.send_down(now, client, &reply);
                }
                flow.is_server_due = true;
            }
            self.wire.recycle(data);
        }
    }

    /// Delivers arrived datagrams to clients. Datagrams to a port that the NAT has forgotten are
    /// dropped.
    fn deliver_down(&mut self) {
        let now = self.now;
        while let Some(WireDatagram { client, ecn, data }) = poll(&mut self.wire.path.down, now) {
            if let Some(flow) = self.flows.iter_mut().find(|flow| flow.is_reached_at(client)) {
                self.stopwatch.time(|| flow.client.on_datagram(now, ecn, data));
                flow.is_client_due = true;
            }
        }
    }

    /// Returns the outcome of the run.
    ///
    /// # Errors
    /// The links' packet counts do not balance.
    pub(super) fn finish(mut self) -> Result<RunOutcome, RunError> {
        let path = &self.wire.path;
        path.up.check_conservation().map_err(RunError::Imbalance)?;
        path.down.check_conservation().map_err(RunError::Imbalance)?;
        if self.flows.iter().any(Flow::is_endless) {
            self.now = self.now.max(self.end());
        }
        let Self { flows, wire, log, now, stopwatch, .. } = &mut self;
        let time = stopwatch.total;
        let mut outcomes = flows.iter_mut().map(|flow| flow.outcome(*now, wire, log, time));
        let first = outcomes.next().expect("there is a first flow");
        let rival = outcomes.next().map(Box::new);
        let samples = self.sampler.map_or_else(Vec::new, |sampler| sampler.samples);
        Ok(RunOutcome { rival, samples, ..first })
    }
}

#[cfg(test)]
mod tests;
