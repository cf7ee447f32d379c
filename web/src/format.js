// Formats numbers for both pages. Missing values (null, undefined, not finite) become an en dash, so
// that data of another server version never shows as "undefined" or "NaN".

export const ABSENT = '–';

const present = (value) => typeof value === 'number' && Number.isFinite(value);

/** A plain number with `digits` decimals and thin thousands separators. */
export function number(value, digits = 0) {
  if (!present(value)) return ABSENT;
  const [whole, fraction] = Math.abs(value).toFixed(digits).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, '\u202f');
  const sign = value < 0 && Number(value.toFixed(digits)) !== 0 ? '−' : '';
  return sign + grouped + (fraction ? `.${fraction}` : '');
}

/** A share from 0 to 1 as a percentage; small shares keep two decimals. */
export function percent(share) {
  if (!present(share)) return ABSENT;
  const value = share * 100;
  if (value === 0) return '0 %';
  return `${number(value, Math.abs(value) < 1 ? 2 : 1)} %`;
}

/** Milliseconds, shown in seconds from ten seconds on. */
export function milliseconds(value) {
  if (!present(value)) return ABSENT;
  return value < 10_000 ? `${number(value)} ms` : seconds(value / 1000);
}

/** Seconds with one decimal below a minute (two below ten), else as a duration. */
export function seconds(value) {
  if (!present(value)) return ABSENT;
  if (value === 0) return '0 s';
  if (value >= 60) return duration(value);
  return `${number(value, value < 10 ? 2 : 1)} s`;
}

/** A long time in its two largest units: "3 d 4 h", "5 min 06 s". */
export function duration(value) {
  if (!present(value)) return ABSENT;
  const whole = Math.max(0, Math.floor(value));
  const two = (n) => String(n).padStart(2, '0');
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${number(days)} d ${two(hours)} h`;
  if (hours) return `${hours} h ${two(minutes)} min`;
  if (minutes) return `${minutes} min ${two(whole % 60)} s`;
  return `${whole} s`;
}

/** A rate in Mbit/s, shown in a suitable unit. */
export function rate(mbps) {
  if (!present(mbps)) return ABSENT;
  if (mbps === 0) return '0 Mbit/s';
  if (mbps >= 1000) return `${number(mbps / 1000, 2)} Gbit/s`;
  if (mbps < 1) return `${number(mbps * 1000)} kbit/s`;
  return `${number(mbps, mbps < 100 ? 1 : 0)} Mbit/s`;
}

/** An amount of memory in megabytes. */
export function megabytes(value) {
  if (!present(value)) return ABSENT;
  return value >= 1000 ? `${number(value / 1000, 2)} GB` : `${number(value, value < 100 ? 1 : 0)} MB`;
}
