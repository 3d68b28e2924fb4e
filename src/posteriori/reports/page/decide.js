// Decisions as posteriori.decide takes them, and what they were worth.

/**
 * Take the action with the highest expected utility for each row; of equally good ones, up to rounding, the first.
 *
 * P holds the probabilities of n rows one after the other (n K numbers), U a list of K rows of A utilities. The result
 * has for each row `best` (the place of its action), `highest` (its expected utility), `margin` over the second best
 * (Infinity if there is one action only) and `valueOfInformation`; `expected` holds n A expected utilities.
 */
export function decide(P, U) {
  const K = U.length, A = U[0].length, n = P.length / K;
  const slack = tieSlack(U), top = U.map(largest);
  const best = new Int32Array(n), highest = new Float64Array(n), expected = new Float64Array(n * A);
  const margin = new Float64Array(n), valueOfInformation = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    const values = expected.subarray(i * A, (i + 1) * A);
    let perfect = 0;
    for (let k = 0; k < K; k++) {
      const p = P[i * K + k], row = U[k];
      perfect += p * top[k];
      for (let a = 0; a < A; a++) values[a] += p * row[a];
    }
    const first = largest(values);
    let action = 0;
    while (values[action] < first - slack) action++;
    let second = -Infinity;
    for (let a = 0; a < A; a++) if (a !== action && values[a] > second) second = values[a];
    best[i] = action;
    highest[i] = first;
    margin[i] = first - second > slack ? first - second : 0;
    valueOfInformation[i] = Math.max(perfect - first, 0);
  }
  return { best, highest, expected, margin, valueOfInformation };
}

/** The difference between expected utilities that rounding alone may make. */
export function tieSlack(U) {
  return 8 * Number.EPSILON * U.reduce((most, row) => row.reduce((m, u) => Math.max(m, Math.abs(u)), most), 0);
}

/** What decisions were worth, in the mean over rows whose true class is known: realised, with its standard error, what
 * was expected, what the best single action and knowing the truth would have given; `counts` is K lists of A rows. */
export function judge(truth, { best, highest }, U) {
  const n = truth.length;
  const counts = U.map((row) => row.map(() => 0));
  let total = 0, believed = 0, known = 0;
  for (let i = 0; i < n; i++) {
    const row = U[truth[i]];
    counts[truth[i]][best[i]]++;
    total += row[best[i]];
    believed += highest[i];
    known += largest(row);
  }
  const realised = total / n;
  let squares = 0;
  for (let i = 0; i < n; i++) squares += (U[truth[i]][best[i]] - realised) ** 2;
  const error = n > 1 ? Math.sqrt(squares / (n - 1) / n) : NaN;
  const frequency = counts.map((row) => row.reduce((sum, m) => sum + m, 0));
  const always = U[0].map((_, a) => frequency.reduce((sum, m, k) => sum + m * U[k][a], 0) / n);
  const single = always.indexOf(largest(always));
  return { counts, realised, error, expected: believed / n, known: known / n, always, single, fixed: always[single] };
}

function largest(values) {
  let most = -Infinity;
  for (const value of values) if (value > most) most = value;
  return most;
}
