// The samples of the last ten minutes, one per second, of each model and of all models together.

export const SECONDS = 600;

const SERIES = ["offered", "served", "violations", "p50", "p99"] as const;
const CONTROL_SERIES = ["response", "gpu_part", "requested", "granted"] as const;
type Values<S extends string> = Record<S, (number | null)[]>;
export type Samples = Values<(typeof SERIES)[number]>;
/** Of a controlled model: milliseconds, a part, cores. */
export type ControlSamples = Values<(typeof CONTROL_SERIES)[number]>;
/** One sample of each model, its values in the order of the series. */
export type Row = Map<string, (number | null)[]>;

const empty = <S extends string>(series: readonly S[], length: number): Values<S> =>
  Object.fromEntries(series.map((one) => [one, Array<number | null>(length).fill(null)])) as Values<S>;

/** Series of each model, as long as the times of the history. */
class Rows<S extends string> {
  readonly models = new Map<string, Values<S>>();

  constructor(private readonly series: readonly S[]) {}

  add(row: Row, before: number, is_full: boolean): void {
    for (const name of row.keys()) {
      if (!this.models.has(name)) this.models.set(name, empty(this.series, before));
    }
    for (const [name, samples] of this.models) {
      const values = row.get(name);
      if (!values) {
        this.models.delete(name);
        continue;
      }
      this.series.forEach((series, index) => {
        samples[series].push(values[index] ?? null);
        if (is_full) samples[series].shift();
      });
    }
  }

  at(index: number): Row {
    const row: Row = new Map();
    for (const [name, samples] of this.models) row.set(name, this.series.map((series) => samples[series][index] ?? null));
    return row;
  }

  /** Reads a part of the document of /gpulet/history; returns its end. */
  read(document: ArrayBuffer, at: number, names: string[], length: number): number {
    for (const name of names) {
      const samples = empty(this.series, 0);
      for (const series of this.series) {
        samples[series] = Array.from(new Float32Array(document, at, length), (value) => (Number.isNaN(value) ? null : value));
        at += length * 4;
      }
      this.models.set(name, samples);
    }
    return at;
  }
}

export class History {
  times: number[] = [];
  private rows = new Rows(SERIES);
  private control = new Rows(CONTROL_SERIES);
  private objectives = new Map<string, number>();
  private total: Samples | undefined; // the result of all(), updated by add()

  of(model: string): Samples | undefined {
    return this.rows.models.get(model);
  }
  control_of(model: string): ControlSamples | undefined {
    return this.control.models.get(model);
  }

  /** Reads the document of /gpulet/history, and keeps newer samples. */
  load(document: ArrayBuffer): void {
    const length = new DataView(document).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(document, 4, length))) as {
      samples: number;
      models: string[];
      controlled?: string[];
    };
    const later = { times: this.times, rows: this.rows, control: this.control };
    this.clear();
    this.times = [...new Float64Array(document, 4 + length, head.samples)];
    const at = this.rows.read(document, 4 + length + head.samples * 8, head.models, head.samples);
    this.control.read(document, at, head.controlled ?? [], head.samples);
    const last = this.times.at(-1) ?? 0;
    later.times.forEach((time, index) => {
      // A sample may be in both, with times that differ slightly.
      if (time >= last + 0.5) this.add(time, later.rows.at(index), later.control.at(index));
    });
  }

  /** `control`: samples of the controlled models. */
  add(time: number, row: Row, control: Row): void {
    const before = this.times.length;
    const is_full = before === SECONDS;
    this.rows.add(row, before, is_full);
    this.control.add(control, before, is_full);
    this.times.push(time);
    if (is_full) this.times.shift();
    if (this.total) {
      for (const series of SERIES) {
        this.total[series].push(null);
        if (is_full) this.total[series].shift();
      }
      this.sum_at(this.total, this.times.length - 1);
    }
  }

  clear(): void {
    this.times = [];
    this.rows = new Rows(SERIES);
    this.control = new Rows(CONTROL_SERIES);
    this.total = undefined;
  }

  /** Sets the models that all() sums, with their objectives. */
  set_summed(models: { name: string; slo_ms: number }[]): void {
    this.objectives = new Map(models.map((model) => [model.name, model.slo_ms]));
    this.total = undefined;
  }

  /** The sums over these models; for latencies, the worst as a percentage of its objective. */
  all(): Samples {
    if (!this.total) {
      this.total = empty(SERIES, this.times.length);
      for (let i = 0; i < this.times.length; ++i) this.sum_at(this.total, i);
    }
    return this.total;
  }

  /**
   * All controlled models together: the worst response time as a percentage of its objective, the sums of
   * cores, and the part of served requests on GPUs.
   */
  all_controlled(models: { name: string; slo_ms: number }[]): ControlSamples {
    const total = empty(CONTROL_SERIES, this.times.length);
    for (let i = 0; i < this.times.length; ++i) {
      let served = 0;
      let on_gpu = 0;
      for (const { name, slo_ms } of models) {
        const samples = this.control_of(name);
        const response = samples?.response[i];
        if (response != null) total.response[i] = Math.max(total.response[i] ?? 0, (100 * response) / slo_ms);
        for (const series of ["requested", "granted"] as const) {
          const cores = samples?.[series][i];
          if (cores != null) total[series][i] = (total[series][i] ?? 0) + cores;
        }
        const part = samples?.gpu_part[i];
        const rate = this.of(name)?.served[i];
        if (part == null || rate == null) continue;
        served += rate;
        on_gpu += part * rate;
      }
      if (served > 0) total.gpu_part[i] = on_gpu / served;
    }
    return total;
  }

  private sum_at(total: Samples, i: number): void {
    for (const [name, slo_ms] of this.objectives) {
      const samples = this.of(name);
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

/** The part of the requests in these seconds without an answer in time; null without requests. */
export function violated(samples: Samples | undefined, seconds: number): number | null {
  if (!samples) return null;
  const total = (values: (number | null)[]): number => values.slice(-seconds).reduce<number>((sum, one) => sum + (one ?? 0), 0);
  const offered = total(samples.offered);
  return offered > 0 ? Math.min(1, total(samples.violations) / offered) : null;
}
