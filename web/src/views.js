// Content of the dashboard for an event, as data: tiles, charts and table columns. Fields and units are
// those of `api/events`.
import { duration, megabytes, milliseconds, number, percent, rate, seconds, ABSENT } from './format.js';

const list = (value) => (Array.isArray(value) ? value : []);
const PROTOCOLS = ['h3', 'h2', 'h1', 'rtmp'];
const PROTOCOL_NAMES = { h3: 'HTTP/3', h2: 'HTTP/2', h1: 'HTTP/1.1', rtmp: 'RTMP' };
const protocolName = (protocol) => PROTOCOL_NAMES[protocol] ?? protocol;

const total = (viewers) => PROTOCOLS.reduce((sum, protocol) => sum + (viewers?.[protocol] ?? 0), 0);

/** Inputs of the scheme's latest decision, without zeros: `k_alpha 4 · loss_rate 0.05 · …`. */
export const reasons = (repair) => Object.entries(repair ?? {})
  .filter(([name, value]) => name !== 'level' && Number.isFinite(value) && value !== 0)
  .map(([name, value]) => `${name.replaceAll('_', ' ')} ${number(value, Number.isInteger(value) ? 0 : 3)}`)
  .join(' · ');

/** Tile with the share of connections that resumed path state: `{ title, value, note, tone }`. */
function knownPaths(cookies) {
  const refused = Object.values(cookies?.refused ?? {}).reduce((sum, count) => sum + count, 0);
  const all = (cookies?.accepted ?? 0) + refused + (cookies?.strangers ?? 0);
  const failed = cookies?.jumps?.failed ?? 0;
  const note = [
    [cookies?.strangers, 'new'],
    [refused, 'refused'],
    [failed, 'jumps failed'],
  ].filter(([count]) => count > 0).map(([count, what]) => `${number(count)} ${what}`).join(' · ');
  return { title: 'Known paths', value: percent(all > 0 ? (cookies.accepted ?? 0) / all : null), note, tone: failed > (cookies?.jumps?.passed ?? 0) ? 'warn' : '' };
}

/** Headline numbers: `{ title, value, note, tone }`. */
export function tiles(event) {
  const streams = list(event.streams);
  const live = streams.filter(({ status }) => status === 'live').length;
  return [
    {
      title: 'Viewers',
      value: number(total(event.viewers)),
      note: PROTOCOLS.filter((protocol) => event.viewers?.[protocol]).map((protocol) => `${protocolName(protocol)} ${number(event.viewers[protocol])}`).join(' · '),
    },
    { title: 'Streams live', value: number(live), note: live < streams.length ? `of ${streams.length}` : '' },
    { title: 'Egress', value: rate(event.egress_mbps) },
    { title: '0-RTT', value: percent(event.zero_rtt_share), note: 'of QUIC connections' },
    { title: 'CPU', value: number(event.cpu_cores, 2), note: 'cores' },
    { title: 'Memory', value: megabytes(event.rss_mb), note: 'resident' },
    { title: 'UDP drops', value: number(event.udp_drops), note: event.udp_drops > 0 ? 'raise the socket buffers' : '', tone: event.udp_drops > 0 ? 'warn' : '' },
    knownPaths(event.cookies),
  ];
}

const byCohort = (value) => (event) => Object.fromEntries(list(event.cohorts).map((cohort) => [String(cohort.name), value(cohort) ?? null]));
const short = (value) => number(value, value !== 0 && Math.abs(value) < 10 ? 1 : 0);
const percentAxis = (value) => `${short(value * 100)}%`;

/** Charts. `values(event)` returns one number per line. */
export const charts = [
  { title: 'Egress', format: rate, axis: short, values: ({ egress_mbps }) => ({ total: egress_mbps }) },
  {
    title: 'Viewers by protocol',
    format: (value) => number(value),
    axis: (value) => (Number.isInteger(value) ? number(value) : ''),
    values: ({ viewers }) => Object.fromEntries(PROTOCOLS.map((protocol) => [protocolName(protocol), viewers?.[protocol] ?? null])),
  },
  { title: 'Loss rate', cohorts: true, format: percent, axis: percentAxis, values: byCohort((cohort) => cohort.loss_rate) },
  { title: 'Recovery latency, p95', cohorts: true, format: milliseconds, axis: (value) => number(value), values: byCohort((cohort) => cohort.recovery_ms?.p95) },
  { title: 'First frame, p90', cohorts: true, format: milliseconds, axis: (value) => number(value), values: byCohort((cohort) => cohort.first_frame_ms?.p90) },
  { title: 'Freezes per viewer-hour', cohorts: true, format: (value) => number(value, 1), axis: short, values: byCohort((cohort) => cohort.freezes_per_hour) },
];

/** Names of cohorts in the server's order, which determines their colours. */
export const cohortOrder = (event) => list(event.cohorts).map(({ name }) => String(name));

const STATUS = {
  live: { text: '● live', tone: 'good' },
  connecting: { text: '◐ connecting', tone: 'warn' },
  waiting: { text: '○ waiting', tone: 'warn' },
  ended: { text: '■ ended', tone: 'muted' },
};

const text = (title, key, more = {}) => ({ title, value: (row) => row[key], ...more });
const figure = (title, key, format, more = {}) => ({ title, right: true, value: (row) => row[key], cell: (row) => format(row[key]), ...more });
const quantiles = (title, key, names, hint) => ({
  title,
  hint,
  right: true,
  value: (row) => row[key]?.[names[0]],
  cell: (row) => (row[key] ? `${names.map((name) => number(row[key][name])).join(' / ')} ms` : ABSENT),
});

/** Corrections by kind: `start codes 300 · adts 225`. */
export const corrections = (row) => Object.entries(row.corrections ?? {})
  .filter(([, count]) => Number.isFinite(count) && count > 0)
  .map(([kind, count]) => `${kind.replaceAll('_', ' ')} ${number(count)}`)
  .join(' · ');

const mark = (bad, value) => ({ text: value, tone: bad ? 'warn' : '' });

export const tables = {
  streams: {
    title: 'Streams',
    empty: 'No streams yet: publish one over RTMP, or configure an origin to pull from.',
    key: (row) => row.name,
    tone: (row) => (row.error ? 'bad' : ''),
    columns: [
      text('Stream', 'name'),
      { title: 'Status', value: (row) => row.status, cell: (row) => STATUS[row.status] ?? String(row.status ?? ABSENT) },
      text('Source', 'source'),
      figure('Viewers', 'viewers', number),
      figure('In', 'in_mbps', rate),
      figure('GOP', 'gop_ms', milliseconds, { hint: 'Length of the last complete group of pictures' }),
      figure('Key frame age', 'key_frame_age_ms', milliseconds, { cell: (row) => mark(row.gop_ms > 0 && row.key_frame_age_ms > 2 * row.gop_ms, milliseconds(row.key_frame_age_ms)) }),
      figure('Skips', 'skips', number, { hint: 'Skips to a key frame by viewers that fell behind' }),
      figure('Thinned', 'thinned', number, { hint: 'Disposable pictures withheld from viewers that fell behind' }),
      text('Codecs', 'codecs'),
      { title: 'Corrected', wrap: true, hint: 'Corrected tags of the publisher or upstream', value: (row) => corrections(row), cell: (row) => mark(corrections(row) !== '', corrections(row) || ABSENT) },
      { title: 'Error', wrap: true, value: (row) => row.error, cell: (row) => ({ text: row.error ?? ABSENT, tone: row.error ? 'bad' : 'muted' }) },
    ],
  },
  cohorts: {
    title: 'Cohorts',
    empty: 'No cohorts are configured.',
    key: (row) => row.name,
    columns: [
      text('Cohort', 'name'),
      text('Scheme', 'scheme', { hint: 'Recovery scheme' }),
      text('Start', 'start', { hint: 'Start mode of connections' }),
      figure('Weight', 'weight', number),
      figure('Viewers', 'viewers', number),
      figure('Sessions', 'sessions', number, { hint: 'Sessions since the start of the server' }),
      quantiles('First frame p50/p90/p99', 'first_frame_ms', ['p50', 'p90', 'p99']),
      figure('Freezes/h', 'freezes_per_hour', (value) => number(value, 1), { hint: 'Freezes of 200 ms and more per viewer-hour' }),
      figure('Frozen s/h', 'freeze_s_per_hour', (value) => number(value, 1), { hint: 'Seconds frozen per viewer-hour' }),
      figure('Loss', 'loss_rate', percent, { hint: 'Share of packets declared lost' }),
      figure('Retransmitted', 'retransmission_ratio', percent, { hint: 'Retransmissions per first transmission' }),
      quantiles('Recovery mean/p95/max', 'recovery_ms', ['mean', 'p95', 'max'], 'From loss detection to the sending of the copy that arrived, for data with a lost first retransmission'),
      figure('Redundancy', 'redundancy_cost', percent, { hint: 'Replicas per first transmission' }),
    ],
  },
  sessions: {
    title: 'Sessions',
    empty: 'No viewers.',
    filter: true,
    key: (row) => row.id,
    columns: [
      text('Session', 'id', { mono: true }),
      text('Stream', 'stream'),
      text('Cohort', 'cohort'),
      { title: 'Protocol', value: (row) => row.protocol, cell: (row) => protocolName(row.protocol ?? ABSENT) },
      text('Network', 'prefix', { mono: true }),
      figure('RTT', 'rtt_ms', (value) => (value < 10 ? `${number(value, 1)} ms` : milliseconds(value))),
      figure('Goodput', 'goodput_mbps', rate),
      figure('Loss', 'loss_rate', percent),
      {
        title: 'Replicas',
        hint: 'Current replicas per lost packet',
        right: true,
        value: (row) => row.repair?.level,
        cell: (row) => number(row.repair?.level),
      },
      figure('First frame', 'first_frame_ms', milliseconds),
      figure('Freezes', 'freezes', number, { cell: (row) => mark(row.freezes > 0, number(row.freezes)) }),
      figure('Frozen', 'freeze_s', seconds),
      figure('Skips', 'skips', number),
      figure('Age', 'age_s', duration),
      {
        title: 'Reasons',
        hint: 'Inputs of the latest decision on replicas',
        value: (row) => reasons(row.repair) || null,
        cell: (row) => ({ text: reasons(row.repair) || ABSENT, tone: 'muted' }),
      },
    ],
  },
  hooks: {
    title: 'Hooks',
    empty: 'No hooks are configured.',
    key: (row) => `${row.event}\u0000${row.url}`,
    tone: (row) => (row.last_error ? 'bad' : ''),
    columns: [
      text('Event', 'event'),
      text('URL', 'url', { wrap: true, mono: true }),
      figure('OK', 'ok', number),
      figure('Failed', 'failed', number, { cell: (row) => mark(row.failed > 0, number(row.failed)) }),
      { title: 'Last error', wrap: true, value: (row) => row.last_error, cell: (row) => ({ text: row.last_error ?? ABSENT, tone: row.last_error ? 'bad' : 'muted' }) },
    ],
  },
};
