//! The flags of `mendcast link`, which have the names of the lab's settings.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;

use clap::Args;
use links::{
    Bunches, EcnPolicy, Jitter, LinkConfig, Loss, LossPlace, PathConfig, Policer, Probability,
    Queue, RareAcks, Reorder, Steps, Trace, Window, parse_duration, parse_rate,
};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use units::{Rate, Timestamp};

use super::{ClientAccess, Relay};
use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast link --listen 127.0.0.1:5000 --to 127.0.0.1:4433 --rtt 60ms --loss 5%
  mendcast link --listen 127.0.0.1:0 --to 127.0.0.1:4433 --rate 12mbps --queue 500kB --json
  mendcast link --listen 127.0.0.1:5000 --to 127.0.0.1:4433 --loss outages:rate=5%,length=20ms

The clock starts with the first datagram. SIGINT and SIGTERM end the relay.
docs/reproduce/links.md explains every model.";
const PATH: &str = "Path";
const LOSS: &str = "Loss and damage";
const NETWORK: &str = "Access networks";
const OUTPUT: &str = "Output";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Address for clients; port 0 takes a free one, printed on stderr.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Address of the server.
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    /// Own address towards the server, two with --flap-every.
    #[arg(long, value_name = "IP[,IP]", value_delimiter = ',')]
    from: Vec<IpAddr>,
    /// Random seed; it decides the fate of the n-th packet.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Rate of the bottleneck, such as 12mbps.
    #[arg(long, value_parser = parse_rate, help_heading = PATH)]
    rate: Option<Rate>,
    /// Rate towards the server, instead of --rate.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, help_heading = PATH)]
    rate_up: Option<Rate>,
    /// Queue of the bottleneck, such as 500kB.
    #[arg(long, value_name = "SIZE", help_heading = PATH)]
    queue: Option<Queue>,
    /// Round-trip propagation time, such as 60ms; half of it each way.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = PATH)]
    rtt: Option<Duration>,
    /// Steps of the round-trip time, such as 8s:200ms,20s:20ms.
    #[arg(long, value_name = "AT:RTT,…", help_heading = PATH)]
    rtt_steps: Option<Steps>,
    /// Variation of the delay, such as 5ms.
    #[arg(long, value_name = "TIME", help_heading = PATH)]
    jitter: Option<Jitter>,
    /// Largest packet in bytes, with its IP header.
    #[arg(long, value_name = "BYTES", help_heading = PATH)]
    mtu: Option<u32>,
    /// Recorded path: delivery times of mahimahi, or time, rate, RTT and loss.
    #[arg(long, value_name = "FILE", value_parser = Trace::load, help_heading = PATH)]
    trace: Option<Trace>,
    /// Loss both ways, such as 5% or ge:p=0.2,r=0.8,good=1%,bad=40%,slot=30ms.
    #[arg(long, help_heading = LOSS)]
    loss: Option<Loss>,
    /// Loss towards the client, instead of --loss.
    #[arg(long, value_name = "LOSS", help_heading = LOSS)]
    loss_down: Option<Loss>,
    /// Loss towards the server, instead of --loss.
    #[arg(long, value_name = "LOSS", help_heading = LOSS)]
    loss_up: Option<Loss>,
    /// Place of the losses: before-queue or after-queue.
    #[arg(long, value_name = "PLACE", default_value = "after-queue", help_heading = LOSS)]
    loss_place: LossPlace,
    /// Outage AT a time, FOR a duration; may be repeated.
    #[arg(long, value_name = "AT,FOR", help_heading = LOSS)]
    blackhole: Vec<Window>,
    /// Share and delay of overtaken packets, such as 1%,5ms.
    #[arg(long, value_name = "SHARE,TIME", help_heading = LOSS)]
    reorder: Option<Reorder>,
    /// Share of packets that arrive twice, such as 0.1%.
    #[arg(long, value_name = "SHARE", help_heading = LOSS)]
    duplicate: Option<Probability>,
    /// Share of damaged packets.
    #[arg(long, value_name = "SHARE", help_heading = LOSS)]
    corrupt: Option<Probability>,
    /// Wake-ups that packets to the client wait for, such as 300ms,awake=30ms.
    #[arg(long, value_name = "EVERY", help_heading = NETWORK)]
    bunches: Option<Bunches>,
    /// Wake-ups that packets to the server wait for.
    #[arg(long, value_name = "EVERY", help_heading = NETWORK)]
    bunches_up: Option<Bunches>,
    /// Token bucket without a queue, towards the client.
    #[arg(long, value_name = "RATE,burst=SIZE", help_heading = NETWORK)]
    policer: Option<Policer>,
    /// Token bucket towards the server.
    #[arg(long, value_name = "RATE,burst=SIZE", help_heading = NETWORK)]
    policer_up: Option<Policer>,
    /// ECN field towards the client: bleach, drop, drop:50%, remark, mark:5%.
    ///
    /// With ,from=5s the policy begins later.
    #[arg(long, value_name = "POLICY", help_heading = NETWORK)]
    ecn: Option<EcnPolicy>,
    /// ECN field towards the server.
    #[arg(long, value_name = "POLICY", help_heading = NETWORK)]
    ecn_up: Option<EcnPolicy>,
    /// Rare acknowledgements of clients: each=32,within=250ms, or chromium.
    #[arg(long, value_name = "RULE", help_heading = NETWORK)]
    acks: Option<RareAcks>,
    /// Interval of changes of the clients' ports, as by a NAT.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = NETWORK)]
    rebind_every: Option<Duration>,
    /// Period of changes between a client's two ports or addresses.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = NETWORK)]
    flap_every: Option<Duration>,
    /// Print the counters as one JSON object at the end.
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        // Blocked before anything else, so that no signal is missed and each ends the loop.
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGINT);
        ends.add(Signal::SIGTERM);
        ends.thread_block().map_err(Error::at("signals"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&ends, flags).map_err(Error::at("signals"))?;

        let path = self.path();
        let mut relay = Relay::open(self.listen, self.to, &path, self.access(&path)?, self.seed)?;
        log_line!("listening on {}", relay.address()?);
        if let Some(rows) = self.trace.as_ref().map(Trace::negative_losses).filter(|rows| *rows > 0)
        {
            log_line!("trace: loss below 0 read as 0 rows={rows}");
        }
        relay.serve(signals.as_fd()).map_err(Error::at("link"))?;
        relay.report(self.json)
    }

    fn path(&self) -> PathConfig {
        let mut path = PathConfig::both(LinkConfig {
            rate: self.rate,
            queue: self.queue.unwrap_or_default(),
            delay: self.rtt.map(|rtt| rtt / 2),
            rtt_steps: self.rtt_steps.clone(),
            bunches: self.bunches,
            policer: self.policer,
            ecn: self.ecn,
            jitter: self.jitter,
            loss: self.loss.clone(),
            loss_place: self.loss_place,
            reorder: self.reorder,
            duplicate: self.duplicate.unwrap_or_default(),
            corrupt: self.corrupt.unwrap_or_default(),
            mtu: self.mtu,
            blackhole: self.blackhole.clone(),
            trace: self.trace.clone(),
        });
        path.up.rate = self.rate_up.or(path.up.rate);
        path.up.loss = self.loss_up.clone().or(path.up.loss);
        (path.up.bunches, path.up.policer) = (self.bunches_up, self.policer_up);
        path.up.ecn = self.ecn_up;
        path.down.loss = self.loss_down.clone().or(path.down.loss);
        path
    }

    /// The clients' access.
    ///
    /// # Errors
    /// One line: addresses that do not fit `--flap-every`.
    fn access(&self, path: &PathConfig) -> Result<ClientAccess, Error> {
        let most = if self.flap_every.is_some() { 2 } else { 1 };
        if self.from.len() > most {
            let given = self.from.len();
            return Err(Error::new(format_args!(
                "--from: {given} addresses; one, or two with --flap-every"
            )));
        }
        let rtt = path.down.delay_at(Timestamp::ZERO) + path.up.delay_at(Timestamp::ZERO);
        Ok(ClientAccess {
            from: self.from.clone(),
            rebind_every: self.rebind_every,
            flap_every: self.flap_every,
            acks: self.acks.map(|rule| (rule, rtt)),
        })
    }
}
