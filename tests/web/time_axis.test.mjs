import assert from "node:assert/strict";
import { test } from "node:test";

import { timeTicks } from "../../viewer/web/trace/time_axis.js";

const texts = (t0, t1, most = 6) => timeTicks(t0, t1, most).map(({ text }) => text);

test("ticks of odd windows are at round moments", () => {
  assert.deepEqual(texts(0, 9_390_000_000), ["0 s", "2 s", "4 s", "6 s", "8 s"]);
  assert.deepEqual(texts(0, 690_000_000), ["0 ms", "200 ms", "400 ms", "600 ms"]);
  assert.deepEqual(texts(0, 690_000_000, 7), ["0 ms", "100 ms", "200 ms", "300 ms", "400 ms", "500 ms", "600 ms"]);
  assert.deepEqual(texts(1_878_123_456, 3_211_000_000), ["2.0 s", "2.5 s", "3.0 s"]);
});

test("ticks of a short window far from the beginning differ in what they say", () => {
  assert.deepEqual(texts(1_500_000_100, 1_500_002_100, 4), ["1500000.5 µs", "1500001.0 µs", "1500001.5 µs", "1500002.0 µs"]);
  assert.deepEqual(texts(7, 10, 10), ["7 ns", "8 ns", "9 ns", "10 ns"]);
});

test("there are never more parts than were asked for, and always a tick in a window as wide as a step", () => {
  for (let span = 1; span < 1e13; span = Math.ceil(span * 1.37)) {
    for (const [t0, most] of [[0, 1], [0, 6], [123_456_789, 10]]) {
      const ticks = timeTicks(t0, t0 + span, most);
      assert.ok(ticks.length <= most + 1 && (t0 || ticks.length), `${t0} ${span} ${most}`);
      assert.equal(new Set(ticks.map(({ text }) => text)).size, ticks.length);
      for (const { time } of ticks) assert.ok(time >= t0 && time <= t0 + span);
    }
  }
  assert.deepEqual(timeTicks(5, 5, 6), []);
});
