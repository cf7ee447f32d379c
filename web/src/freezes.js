// Counts the freezes of a <video> element from its events and a watchdog of its clock.
//
// A stall lasts from `waiting`, after the first `playing`, until the next `playing`: the buffer is
// empty and the picture stands. Startup is no stall. Stalls below the threshold are pseudo-stalls
// (browsers fire `waiting` for tens of milliseconds right after the start) and count as playing. The
// denominator of every rate is the wall time from the first rendered frame to the end, stalls
// included, startup excluded: `playedMs + freezeMs`.
//
// The element's events are not to be trusted alone: some stalls come without `waiting`, and some
// `playing` never comes. So media time that stands for WATCHDOG_MS opens a stall, back-dated to the
// moment when it stopped, and media time that advances in two successive ticks closes one.
//
// Times are milliseconds of one monotonic clock. The object keeps sums only, so it never grows.

/** Stall lengths, in milliseconds, from which stalls are counted; every one from the same events. */
export const THRESHOLDS_MS = [0, 200, 500, 1250];
/** The threshold of what the pages and beacons call a freeze. */
export const FREEZE_MS = 200;
/** Standing media time that is a stall even without an event. */
export const WATCHDOG_MS = 1250;
/** A longer silence between ticks in which media time stood is a page that slept, not a freeze. */
export const ASLEEP_MS = 10_000;

export class FreezeCounter {
  #state = 'idle'; // idle | playing | frozen
  #since = 0;
  #mayFreeze = false;
  #watchedMs = 0;
  #stalls = THRESHOLDS_MS.map(() => ({ count: 0, ms: 0 }));
  #tickAt = 0;
  #mediaTime = 0;
  #advancedAt = 0;
  #advancing = false;

  /** A frame was shown: from here on time counts. */
  firstFrame(now) {
    if (this.#state === 'idle') this.#enter('playing', now);
  }

  /** The element's `playing`. */
  playing(now) {
    this.#mayFreeze = true;
    this.#advancedAt = now;
    if (this.#state !== 'playing') this.#enter('playing', now);
  }

  /** The element's `waiting`, or the loss of the connection that fed it. */
  waiting(now) {
    if (this.#mayFreeze && this.#state === 'playing') this.#enter('frozen', now);
  }

  /** The stream ended or the viewer stopped it: what follows is neither played nor frozen. */
  stop(now) {
    this.#mayFreeze = false;
    if (this.#state !== 'idle') this.#enter('idle', now);
  }

  /** The watchdog, a few times per second: the element's `currentTime` in seconds. */
  tick(now, mediaTime) {
    const pause = now - this.#tickAt;
    const advance = mediaTime - this.#mediaTime;
    this.#tickAt = now;
    this.#mediaTime = mediaTime;
    if (this.#state === 'idle') return;
    if (pause > ASLEEP_MS && advance * 1000 < pause / 2) {
      const slept = Math.min(pause, now - this.#since);
      this.#since += slept;
      this.#advancedAt = now;
      this.#advancing = false;
    } else if (advance > 0) {
      if (this.#state === 'frozen' && this.#advancing) this.#enter('playing', Math.max(this.#since, this.#advancedAt));
      this.#advancing = true;
      this.#advancedAt = now;
    } else {
      this.#advancing = false;
      if (this.#mayFreeze && this.#state === 'playing' && now - this.#advancedAt >= WATCHDOG_MS) {
        this.#enter('frozen', Math.max(this.#since, this.#advancedAt));
      }
    }
  }

  /** Whether the picture stands at this moment. */
  get frozen() {
    return this.#state === 'frozen';
  }

  /**
   * The sums so far, a stall that still lasts included: `freezes`, `freezeMs`, `playedMs` for stalls
   * of FREEZE_MS and more, and `stalls`, the number and length for each of THRESHOLDS_MS.
   */
  snapshot(now) {
    const lasting = this.#state === 'idle' ? 0 : now - this.#since;
    const stalls = this.#stalls.map(({ count, ms }, i) => {
      const open = this.#state === 'frozen' && lasting >= THRESHOLDS_MS[i];
      return { thresholdMs: THRESHOLDS_MS[i], count: count + (open ? 1 : 0), ms: ms + (open ? lasting : 0) };
    });
    const { count: freezes, ms: freezeMs } = stalls[THRESHOLDS_MS.indexOf(FREEZE_MS)];
    return { freezes, freezeMs, playedMs: this.#watchedMs + lasting - freezeMs, stalls };
  }

  #enter(state, now) {
    const lasted = now - this.#since;
    if (this.#state !== 'idle') this.#watchedMs += lasted;
    if (this.#state === 'frozen') {
      this.#stalls.forEach((stall, i) => {
        if (lasted >= THRESHOLDS_MS[i]) {
          stall.count += 1;
          stall.ms += lasted;
        }
      });
    }
    this.#state = state;
    this.#since = now;
    this.#advancing = false;
  }
}
