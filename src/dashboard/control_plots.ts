// What the plots of control show: the response time against its set point, cores, the part of GPUs.
import { cores, ms, percent } from "./format";
import type { ControlSamples } from "./history";
import type { Kind, Shown } from "./plots";

export interface Controlled extends Shown {
  /** Empty: all models that are controlled together; then these two are percentages. */
  model: string;
  slo: number;
  set_point: number;
  samples: ControlSamples;
}

const response_word = (value: number | null | undefined, shown: Controlled): string =>
  shown.model ? `${ms(value)} ms` : percent(value == null ? value : value / 100);

const percentages = (parts: (number | null)[]): (number | null)[] => parts.map((part) => (part == null ? part : 100 * part));

export const CONTROL: Kind<Controlled>[] = [
  {
    id: "response",
    title: (shown) => (shown.model ? "Response time, milliseconds" : "Response time, % of the objective (worst model)"),
    lines: [
      { label: "response", color: "--line-response", value: ({ samples }) => samples.response },
      { label: "set point", color: "--line-set-point", dash: [6, 3], value: (shown) => shown.times.map(() => shown.set_point) },
      { label: "objective", color: "--line-slo", dash: [2, 3], value: (shown) => shown.times.map(() => shown.slo) },
    ],
    word: response_word,
    words: (shown) => {
      const over = shown.samples.response.filter((value) => value != null && value > shown.slo).length;
      return `${response_word(shown.samples.response.at(-1), shown)} now, aimed at ${response_word(shown.set_point, shown)}` +
        `; over the objective in ${over} of ${shown.times.length} seconds.`;
    },
  },
  {
    id: "cores",
    title: () => "CPU cores",
    lines: [
      { label: "given", color: "--line-given", fill: true, value: ({ samples }) => samples.given },
      { label: "asked for", color: "--line-asked", dash: [6, 3], value: ({ samples }) => samples.asked },
    ],
    word: (value) => cores(value),
    words: (shown) => {
      const short = shown.samples.given.filter((value, index) => value != null && value < (shown.samples.asked[index] ?? 0) - 0.01).length;
      return `${cores(shown.samples.given.at(-1))} given of ${cores(shown.samples.asked.at(-1))} asked for now` +
        `; fewer than asked for in ${short} of ${shown.times.length} seconds.`;
    },
  },
  {
    id: "gpu-part",
    title: () => "Answered on GPUs, %",
    lines: [{ label: "on GPUs", color: "--line-gpu", fill: true, value: ({ samples }) => percentages(samples.gpu_part) }],
    word: (value) => percent(value == null ? value : value / 100),
    words: (shown) => `${percent(shown.samples.gpu_part.at(-1))} of the answers now, the rest on CPUs.`,
  },
];
