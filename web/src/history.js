// The last minutes of some named series, in uPlot's format: a list of times, and a list of values per
// name, `null` where missing. Limited in time, points and series.

export class History {
  #windowS;
  #gapS;
  #maxSeries;
  #times = [];
  #columns = new Map();

  /**
   * Keeps `windowS` seconds and at most two points per second. A line breaks where times are more
   * than `gapS` apart. Series beyond `maxSeries` are dropped.
   */
  constructor(windowS = 600, gapS = 3, maxSeries = 8) {
    this.#windowS = windowS;
    this.#gapS = gapS;
    this.#maxSeries = maxSeries;
  }

  /** Adds the values at a time in seconds: an object from name to number or null. */
  push(time, values) {
    if (!Number.isFinite(time)) return;
    // If the server's clock steps back, values in its future are removed.
    while (this.#times.length && this.#times.at(-1) >= time) this.#each((list) => list.pop());
    const last = this.#times.at(-1);
    if (last !== undefined && time - last > this.#gapS) this.#append(last + this.#gapS / 2, {});
    this.#append(time, values);
    while (this.#times[0] < time - this.#windowS || this.#times.length > 2 * this.#windowS) {
      this.#each((list) => list.shift());
    }
    for (const [name, column] of this.#columns) {
      if (!Object.hasOwn(values, name) && column.every((value) => value === null)) this.#columns.delete(name);
    }
  }

  #append(time, values) {
    for (const name of Object.keys(values)) {
      if (!this.#columns.has(name) && this.#columns.size < this.#maxSeries) {
        this.#columns.set(name, this.#times.map(() => null));
      }
    }
    this.#times.push(time);
    for (const [name, column] of this.#columns) {
      const value = Object.hasOwn(values, name) ? values[name] : null;
      column.push(Number.isFinite(value) ? value : null);
    }
  }

  #each(action) {
    action(this.#times);
    this.#columns.forEach(action);
  }

  get names() {
    return [...this.#columns.keys()];
  }

  get length() {
    return this.#times.length;
  }

  /**
   * `[from, to]` of the time axis. It starts at the first stored value, so that a few seconds fill the
   * whole width, and spans at least `leastS` seconds.
   */
  span(leastS = 30) {
    const columns = [...this.#columns.values()];
    const last = this.#times.at(-1) ?? 0;
    const from = this.#times.find((_, i) => columns.some((column) => column[i] !== null)) ?? last - leastS;
    return [from, Math.max(last, from + leastS)];
  }

  /** `[times, values of the first name, …]`. The lists are not copied. */
  get data() {
    return [this.#times, ...this.#columns.values()];
  }
}
