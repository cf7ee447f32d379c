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

use super::{Access, Relay};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where clients connect; port 0 takes any free one, printed as `listening on ADDR`.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// The server.
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    /// Address of this machine that the server sees, two with --flap-every; otherwise the system
    /// chooses.
    #[arg(long, value_name = "IP[,IP]", value_delimiter = ',')]
    from: Vec<IpAddr>,
    /// Rate of the bottleneck, e.g. 12mbps.
    #[arg(long, value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Rate towards the server, instead of --rate.
    #[arg(long, value_parser = parse_rate)]
    rate_up: Option<Rate>,
    /// Round-trip propagation time, e.g. 60ms; half of it each way.
    #[arg(long, value_parser = parse_duration)]
    rtt: Option<Duration>,
    /// Round-trip times from points in time on, e.g. 8s:200ms,20s:20ms.
    #[arg(long, value_name = "AT:RTT,…")]
    rtt_steps: Option<Steps>,
    /// Wake-ups for which packets to the client wait, e.g. 200ms or 300ms,awake=30ms.
    #[arg(long, value_name = "EVERY")]
    bunches: Option<Bunches>,
    /// Wake-ups for which packets to the server wait.
    #[arg(long, value_name = "EVERY")]
    bunches_up: Option<Bunches>,
    /// Variation of the delay, e.g. 5ms.
    #[arg(long)]
    jitter: Option<Jitter>,
    /// Queue of the bottleneck, e.g. 500kB.
    #[arg(long)]
    queue: Option<Queue>,
    /// Token bucket towards the client, without a queue, e.g. 2mbps,burst=20kB.
    #[arg(long, value_name = "RATE,burst=SIZE")]
    policer: Option<Policer>,
    /// Token bucket towards the server.
    #[arg(long, value_name = "RATE,burst=SIZE")]
    policer_up: Option<Policer>,
    /// Treatment of the ECN field towards the client: bleach, drop, drop:50%, remark or mark:5%,
    /// also with ,from=5s.
    #[arg(long, value_name = "POLICY")]
    ecn: Option<EcnPolicy>,
    /// Treatment of the ECN field towards the server.
    #[arg(long, value_name = "POLICY")]
    ecn_up: Option<EcnPolicy>,
    /// Loss both ways, e.g. 5% or ge:p=0.2,r=0.8,good=1%,bad=40%,slot=30ms.
    #[arg(long)]
    loss: Option<Loss>,
    /// Loss towards the client, instead of --loss.
    #[arg(long)]
    loss_down: Option<Loss>,
    /// Loss towards the server, instead of --loss.
    #[arg(long)]
    loss_up: Option<Loss>,
    /// Whether packets are lost before-queue or after-queue.
    #[arg(long, default_value = "after-queue")]
    loss_place: LossPlace,
    /// Packets held back and overtaken, e.g. 1%,5ms.
    #[arg(long)]
    reorder: Option<Reorder>,
    /// Share of packets that arrive twice, e.g. 0.1%.
    #[arg(long)]
    duplicate: Option<Probability>,
    /// Share of packets that are damaged.
    #[arg(long)]
    corrupt: Option<Probability>,
    /// Largest packet in bytes, IP header included.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Interval of changes of the clients' addresses, as by a NAT with short timeouts.
    #[arg(long, value_parser = parse_duration, value_name = "EVERY")]
    rebind_every: Option<Duration>,
    /// The clients' packets come from two ports (or the two addresses of --from) in turn, each for
    /// this long.
    #[arg(long, value_parser = parse_duration, value_name = "EVERY")]
    flap_every: Option<Duration>,
    /// How rarely clients acknowledge, e.g. each=32,within=250ms; or chromium.
    #[arg(long, value_name = "RULE")]
    acks: Option<RareAcks>,
    /// Everything vanishes from AT on, for FOR; may be repeated.
    #[arg(long, value_name = "AT,FOR")]
    blackhole: Vec<Window>,
    /// A recorded path: mahimahi delivery opportunities, or rows of time, rate, RTT and loss.
    #[arg(long, value_name = "FILE", value_parser = Trace::load)]
    trace: Option<Trace>,
    /// Same seed, same fate of the n-th packet.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the counters as one JSON object at the end.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), String> {
        // Blocked before anything else, so that no signal is missed and each ends the loop.
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGINT);
        ends.add(Signal::SIGTERM);
        ends.thread_block().map_err(|e| format!("signals: {e}"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&ends, flags).map_err(|e| format!("signals: {e}"))?;

        let path = self.path();
        let mut relay = Relay::open(self.listen, self.to, &path, self.access(&path)?, self.seed)?;
        eprintln!("listening on {}", relay.address()?);
        if let Some(rows) = self.trace.as_ref().map(Trace::negative_losses).filter(|rows| *rows > 0)
        {
            eprintln!("trace: loss below 0 read as 0 rows={rows}");
        }
        relay.serve(signals.as_fd()).map_err(|e| format!("link: {e}"))?;
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
    fn access(&self, path: &PathConfig) -> Result<Access, String> {
        let most = if self.flap_every.is_some() { 2 } else { 1 };
        if self.from.len() > most {
            let given = self.from.len();
            return Err(format!("--from: {given} addresses; one, or two with --flap-every"));
        }
        let rtt = path.down.delay_at(Timestamp::ZERO) + path.up.delay_at(Timestamp::ZERO);
        Ok(Access {
            from: self.from.clone(),
            rebind_every: self.rebind_every,
            flap_every: self.flap_every,
            acks: self.acks.map(|rule| (rule, rtt)),
        })
    }
}
