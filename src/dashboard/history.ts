// The last ten minutes, one sample a second, of every model and of all models together.

export const SECONDS = 600;

export const SERIES = ["offered", "served", "violations", "p50", "p99"] as const;
export type Series = (typeof SERIES)[number];
export type Samples = Record<Series, (number | null)[]>;

const empty = (length: number): Samples => ({
  offered: Array(length).fill(null),
  served: Array(length).fill(null),
  violations: Array(length).fill(null),
  p50: Array(length).fill(null),
  p99: Array(length).fill(null),
});

export class History {
  times: number[] = [];
  private models = new Map<string, Samples>();
  private objectives = new Map<string, number>();
  private total: Samples | undefined; // as all() gives it, kept up with what is added

  of(model: string): Samples | undefined {
    return this.models.get(model);
  }

  /** Takes in the document of /gpulet/history; what came later than it stays. */
  load(document: ArrayBuffer): void {
    const length = new DataView(document).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(document, 4, length))) as {
      samples: number;
      models: string[];
    };
    let at = 4 + length;
    const later = new History();
    later.times = this.times;
    later.models = this.models;
    this.times = [...new Float64Array(document, at, head.samples)];
    this.models = new Map();
    this.total = undefined;
    at += head.samples * 8;
    for (const name of head.models) {
      const samples = empty(0);
      for (const series of SERIES) {
        const values = new Float32Array(document, at, head.samples);
        samples[series] = Array.from(values, (value) => (Number.isNaN(value) ? null : value));
        at += head.samples * 4;
      }
      this.models.set(name, samples);
    }
    const last = this.times.at(-1) ?? 0;
    later.times.forEach((time, index) => {
      // A sample is in both where the document was written after it: clocks differ by a moment.
      if (time < last + 0.5) return;
      const row = new Map<string, (number | null)[]>();
      for (const [name, samples] of later.models) row.set(name, SERIES.map((series) => samples[series][index] ?? null));
      this.add(time, row);
    });
  }

  /** One sample of each model, its values in the order of SERIES. */
  add(time: number, row: Map<string, (number | null)[]>): void {
    for (const name of row.keys()) {
      if (!this.models.has(name)) this.models.set(name, empty(this.times.length));
    }
    this.times.push(time);
    const old = this.times.length > SECONDS;
    if (old) this.times.shift();
    for (const [name, samples] of this.models) {
      const values = row.get(name);
      if (!values) {
        this.models.delete(name);
        continue;
      }
      SERIES.forEach((series, index) => {
        samples[series].push(values[index] ?? null);
        if (old) samples[series].shift();
      });
    }
    if (this.total) {
      for (const series of SERIES) {
        this.total[series].push(null);
        if (old) this.total[series].shift();
      }
      this.sum_at(this.total, this.times.length - 1);
    }
  }

  clear(): void {
    this.times = [];
    this.models.clear();
    this.total = undefined;
  }

  /** Which models are summed up, with their objectives. */
  summed(models: { name: string; slo_ms: number }[]): void {
    this.objectives = new Map(models.map((model) => [model.name, model.slo_ms]));
    this.total = undefined;
  }

  /** The sum over them, and of the latencies the worst as a percentage of its objective. */
  all(): Samples {
    if (!this.total) {
      this.total = empty(this.times.length);
      for (let i = 0; i < this.times.length; ++i) this.sum_at(this.total, i);
    }
    return this.total;
  }

  private sum_at(total: Samples, i: number): void {
    for (const [name, slo_ms] of this.objectives) {
      const samples = this.models.get(name);
      if (!samples) continue;
      for (const series of ["offered", "served", "violations"] as const) {
        const value = samples[series][i];
        if (value != null) total[series][i] = (total[series][i] ?? 0) + value;
      }
      for (const series of ["p50", "p99"] as const) {
        const value = samples[series][i];
        if (value != null && slo_ms > 0) total[series][i] = Math.max(total[series][i] ?? 0, (100 * value) / slo_ms);
      }
    }
  }
}

/** Of all requests of these seconds, the part that had no answer in time; null without requests. */
export function violated(samples: Samples | undefined, seconds: number): number | null {
  if (!samples) return null;
  const total = (values: (number | null)[]): number => values.slice(-seconds).reduce<number>((sum, one) => sum + (one ?? 0), 0);
  const offered = total(samples.offered);
  return offered > 0 ? Math.min(1, total(samples.violations) / offered) : null;
}
