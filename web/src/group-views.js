// Content of the page of user groups for a response of `api/autoplex`, as data: notices, tiles, table columns, and the text
// about a group. Missing values become a dash, because a report may come from another release.
import { ABSENT, duration, megabytes, milliseconds, number, percent, rate } from './format.js';

const list = (value) => (Array.isArray(value) ? value : []);
const finite = (value) => typeof value === 'number' && Number.isFinite(value);
const object = (value) => (value !== null && typeof value === 'object' ? value : {});
const sum = (counts) => Object.values(object(counts)).reduce((all, count) => all + (finite(count) ? count : 0), 0);
/** A limit of bytes in flight, usually tens of kilobytes. */
const size = (bytes) => (finite(bytes) && bytes < 1e6 ? `${number(bytes / 1e3)} kB` : megabytes(finite(bytes) ? bytes / 1e6 : null));
const mbps = (bps) => (finite(bps) ? bps / 1e6 : null);
/** Time since a Unix time in seconds. */
const since = (now, time) => (finite(now) && finite(time) ? now / 1000 - time : null);
const ago = (now, time) => (finite(since(now, time)) ? `${coarse(since(now, time))} ago` : ABSENT);

/** A duration in its largest units: no seconds with minutes, no minutes with days. */
export function coarse(seconds) {
  if (!finite(seconds)) return ABSENT;
  if (seconds < 60) return duration(seconds);
  return duration(Math.floor(seconds / 60) * 60).replace(/ 00 \D+$/, '');
}

/** The groups of a response, each with the time of the response. */
export const groups = (answer) => list(answer.report?.shown).filter((group) => group && typeof group === 'object')
  .map((group) => ({ ...group, name: String(group.name ?? ''), now: answer.time_ms }));

/** Notices at the top of the page: `{ text, tone }`. */
export function notices(answer) {
  const { mode, table, report, limits } = answer;
  const said = [];
  const say = (text, tone = 'muted') => said.push({ text, tone });
  if (mode === 'off') say('AutoPlex is off on this edge: no session is capped. [autoplex] mode turns it on.');
  if (mode === 'demand') say(`Mode “demand”: sessions of all groups are capped at ${number(limits?.ceiling, 1)} times their stream’s own rate. No table is used.`);
  if (answer.report_fault) say(String(answer.report_fault), mode === 'off' ? 'muted' : 'warn');
  if (mode !== 'safe' && mode !== 'paper') return said;
  if (!table) say('No table is in force: no session is capped.', 'warn');
  else if (table.age_s > table.lifetime_s) say(`The table was decided ${coarse(table.age_s)} ago and was valid for ${coarse(table.lifetime_s)}: no session is capped.`, 'bad');
  if (table && report && table.decided !== report.end) {
    say(`The report belongs to another decision (${ago(answer.time_ms, report.end)}) than the table (${ago(answer.time_ms, table.decided)}): one of the files was not copied.`, 'warn');
  }
  return said;
}

/** Headline numbers: `{ title, value, note, tone }`. */
export function tiles(answer) {
  const { report, shares, limits, sessions, absent, tables, table } = answer;
  const all = sum(sessions);
  const missed = Object.entries(object(absent)).filter(([, count]) => count > 0);
  const part = (name) => (all > 0 ? `${name} ${percent((sessions[name] ?? 0) / all)}` : '');
  const free = ['explorers', 'holdout', 'control'].filter((name) => finite(shares?.[name])).map((name) => `${name} ${percent(shares[name])}`);
  const fit = limits ? `${number(limits.floor, 1)} to ${number(limits.ceiling, 1)} × the stream` : '';
  return [
    {
      title: 'Groups',
      value: number(report?.groups),
      note: report ? `${number(report.decided)} decided · ${number(report.off)} off` : '',
      tone: report?.off > 0 ? 'warn' : '',
    },
    { title: 'Decided from', value: number(report?.sessions), note: report ? `sessions in ${coarse(report.window_s)}` : 'sessions' },
    {
      title: 'Decided',
      value: ago(answer.time_ms, report?.end),
      note: report ? `every ${coarse(report.period_s)}, holds ${coarse(report.lifetime_s)}` : '',
      tone: report && since(answer.time_ms, report.end) > report.lifetime_s ? 'bad' : '',
    },
    { title: 'Policy', value: String(report?.policy ?? ABSENT), note: 'decides which sessions count' },
    { title: 'Mode here', value: String(answer.mode ?? ABSENT), note: answer.mode === 'safe' ? fit : '' },
    { title: 'Sessions here', value: number(sessions ? all : null), note: part('treated') || free.join(' · ') },
    {
      title: 'Without parameters',
      value: number(absent ? sum(absent) : null),
      note: missed.map(([reason, count]) => `${reason} ${number(count)}`).join(' · '),
    },
    {
      title: 'Tables loaded',
      value: number(tables?.loaded),
      note: [tables?.refused > 0 && `${number(tables.refused)} refused`, table && `of ${coarse(table.age_s)} ago`].filter(Boolean).join(' · '),
      tone: tables?.refused > 0 ? 'warn' : '',
    },
  ];
}

const SIDES = ['treated', 'holdout'];
const OUTCOMES = {
  freezes: { key: 'freezes_per_100_s', words: 'treated viewers froze more', of: (value) => `${number(value, 2)}`, unit: ' per 100 s' },
  first_frame: { key: 'first_frame_ms', words: 'their first frame came later', of: milliseconds, unit: '' },
};

/** Reasons why a group is off: `treated viewers froze more: 1.90 against 0.70 per 100 s`. */
export function why({ off, name }) {
  if (!off || typeof off !== 'object') return '';
  const reasons = list(off.why).filter((reason) => Object.hasOwn(OUTCOMES, reason)).map((reason) => {
    const { key, words, of, unit } = OUTCOMES[reason];
    return `${words}: ${of(off.treated?.[key])} against ${of(off.holdout?.[key])}${unit}`;
  });
  const by = off.by !== undefined && off.by !== name ? `with ${off.by}` : '';
  return [by, reasons.join('; ') || (by ? '' : 'reason unknown')].filter(Boolean).join(', ');
}

const state = (group) => {
  if (group.off) return { text: `■ off for ${coarse(since(group.now, group.off.since))}`, tone: 'bad', note: why(group) };
  return finite(group.rate) ? { text: '● held', tone: 'good' } : { text: '○ undecided', tone: 'muted' };
};

/** A decided parameter, marked as not in force while the group is off. */
const parameter = (title, key, format, hint) => ({
  title, hint, right: true, value: (row) => row[key], cell: (row) => ({ text: format(row[key]), tone: row.off ? 'muted' : '' }),
});

/** A value of treated viewers and of the hold-out, sorted by their ratio. */
const sides = (title, key, format, hint) => ({
  title,
  hint: `${hint}: treated viewers / hold-out; sorted by the ratio`,
  right: true,
  value: (row) => {
    const [treated, holdout] = SIDES.map((side) => row[side]?.[key]);
    return finite(treated) && holdout > 0 ? treated / holdout : null;
  },
  cell: (row) => (SIDES.some((side) => finite(row[side]?.[key])) ? SIDES.map((side) => format(row[side]?.[key])).join(' / ') : ABSENT),
});

/** The table of groups. */
export const table = {
  title: 'User groups',
  note: 'freezes, first frames and plays: treated viewers / hold-out',
  empty: 'No groups yet: a decision needs sessions.',
  filter: true,
  limit: 250,
  key: (row) => row.name,
  tone: (row) => (row.off ? 'bad' : ''),
  columns: [
    { title: 'Group', value: (row) => row.name },
    { title: 'State', wrap: true, value: (row) => state(row).text, cell: state },
    parameter('Cap', 'rate', (value) => rate(mbps(value)), 'Maximum rate of a session of the group'),
    parameter('In flight', 'in_flight', size, 'Maximum bytes in flight'),
    { title: 'Decided', right: true, value: (row) => since(row.now, row.decided), cell: (row) => ago(row.now, row.decided) },
    { title: 'Sessions', hint: 'Sessions behind the decision', right: true, value: (row) => row.sessions, cell: (row) => number(row.sessions) },
    sides('Freezes/100 s', 'freezes_per_100_s', (value) => number(value, 2), 'Freezes per 100 s played'),
    sides('First frame', 'first_frame_ms', milliseconds, 'Mean time to the first frame'),
    { title: 'Plays', hint: 'Compared sessions: treated viewers / hold-out', right: true, value: (row) => row.treated?.sessions, cell: (row) => (row.treated ? SIDES.map((side) => number(row[side]?.sessions)).join(' / ') : ABSENT) },
  ],
};

/** The group shown by default: the largest one that is off, else the largest one. */
export const first = (all) => all.find(({ off }) => off) ?? all[0];

/** A line about a group: its cap, or the reason why it has none. */
export function told(group) {
  if (group.off) return `Off for ${coarse(since(group.now, group.off.since))}, ${why(group)}. Its sessions are not capped.`;
  if (!finite(group.rate)) return 'Undecided for lack of data. Its sessions are not capped.';
  return `At most ${rate(mbps(group.rate))} and ${size(group.in_flight)} in flight, decided ${ago(group.now, group.decided)} from ${number(group.sessions)} sessions.`;
}

/** Outcomes of both sides: rows of a title and a text for each side. */
export const comparison = (group) => [
  ['Plays', 'sessions', (value) => number(value)],
  ['Freezes per 100 s', 'freezes_per_100_s', (value) => number(value, 2)],
  ['Frozen s per 100 s', 'frozen_s_per_100_s', (value) => number(value, 2)],
  ['First frame, mean', 'first_frame_ms', milliseconds],
].map(([title, key, format]) => [title, ...SIDES.map((side) => format(group[side]?.[key]))]);

/** Start of the counts. */
export const counted = (group) => {
  if (!finite(group.counted)) return 'No counts yet.';
  return group.off && group.off.by === group.name ? 'Counts when it was turned off.' : `Counted for ${coarse(since(group.now, group.counted))}.`;
};

/** Text about groups that are not in the table. */
export const leftOut = (report) => (report?.left_out > 0 ? `${number(report.left_out)} smaller groups are not listed; “mendcast autoplex explain ADDRESS” shows any group.` : '');

/** Formats a rate of the report. */
export const bps = (value) => rate(mbps(value));
