// Keeps the stream of server-sent events open. A browser reconnects after a dropped connection, but
// gives up on an error status and does not notice a silent connection. In both cases a new connection
// is opened, after growing delays.
//
// Driven by `tick(now)` about once per second, without a clock of its own. Times are in milliseconds.

/** Silence after which the page reports missing data. Events arrive every second. */
export const LATE_MS = 3000;
/** Silence after which the connection is replaced. */
export const SILENT_MS = 8000;
/** Maximum delay between connections, doubling from one second. */
export const LONGEST_WAIT_MS = 15_000;

const CLOSED = 2; // EventSource.CLOSED

export class Feed {
  #open;
  #onData;
  #source = null;
  #heardAt;
  #openedAt = 0;
  #wait = 1000;
  #retryAt;
  #unreadable = false;

  /** `open()` returns an EventSource; `onData` receives the object of each event. */
  constructor(open, onData, now) {
    this.#open = open;
    this.#onData = onData;
    this.#heardAt = now;
    this.#retryAt = now;
    this.tick(now);
  }

  /** State of the page: `live`, `late` (with seconds since the last event) or `unreadable`. */
  state(now) {
    if (this.#unreadable) return { state: 'unreadable', silentS: 0 };
    const silent = now - this.#heardAt;
    return { state: silent > LATE_MS ? 'late' : 'live', silentS: Math.floor(silent / 1000) };
  }

  tick(now) {
    if (this.#source) {
      const silent = now - Math.max(this.#heardAt, this.#openedAt) > SILENT_MS;
      if (this.#source.readyState !== CLOSED && !silent) return;
      this.#source.close();
      this.#source = null;
      this.#retryAt = now + this.#wait;
      this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT_MS);
    }
    if (now >= this.#retryAt) {
      this.#openedAt = now;
      this.#source = this.#open();
    }
  }

  /** Handles the text of an event. */
  heard(text, now) {
    this.#heardAt = now;
    this.#wait = 1000;
    let data = null;
    try {
      data = JSON.parse(text);
    } catch {
      // The page shows it by `state`. Invalid JSON comes from another version of the server or a proxy.
    }
    this.#unreadable = data === null || typeof data !== 'object';
    if (!this.#unreadable) this.#onData(data);
  }
}
