// The problems that the frontend found, each with its cause and fix. Long lists are grouped by cause.
import type { Problem } from "./documents";
import { find, keyed, make, write } from "./dom";
import { counted } from "./format";

const MAX_UNGROUPED = 8;

interface Shown {
  key: string;
  problems: Problem[]; // one, or several of one cause
}

const key_of = ({ cause, model, node, device, gpulet }: Problem): string => [cause, model, node, device ?? "", gpulet ?? ""].join(" ");

function shown_of(problems: Problem[]): Shown[] {
  if (problems.length <= MAX_UNGROUPED) return problems.map((one) => ({ key: key_of(one), problems: [one] }));
  const groups = new Map<string, Problem[]>();
  for (const one of problems) {
    const name = `${one.cause} ${one.grave}`;
    groups.set(name, [...(groups.get(name) ?? []), one]);
  }
  return [...groups].map(([name, group]) => ({ key: group.length === 1 ? key_of(group[0]!) : name, problems: group }));
}

/** "too_few_devices" is "too few devices". */
const words_of = (cause: string): string => cause.replaceAll("_", " ");

function body_of(problem: Problem): HTMLElement {
  const body = make("span", "", "", make("span", "what", problem.text));
  if (problem.fix) body.append(" ", make("span", "fix", problem.fix));
  return body;
}

function create({ problems }: Shown): HTMLElement {
  const item = make("li", problems[0]!.grave ? "grave" : "mild", "", make("b", "", problems[0]!.grave ? "Problem" : "Note"));
  if (problems.length === 1) {
    item.append(body_of(problems[0]!));
  } else {
    item.append(make("details", "", "", make("summary"), make("ul")));
  }
  return item;
}

/** Keeps the elements when figures change, so that screen readers announce a problem once. */
function update(item: HTMLElement, { problems }: Shown): void {
  const first = problems[0]!;
  if (problems.length === 1) {
    write(item.querySelector(".what")!, first.text);
    const fix = item.querySelector(".fix");
    if (fix) write(fix, first.fix);
    return;
  }
  const of = first.model ? counted(problems.length, "model") : counted(problems.length, "problem");
  write(item.querySelector("summary")!, `${of}: ${words_of(first.cause)}`);
  keyed(item.querySelector("ul")!, problems, key_of, (one) => make("li", "", "", body_of(one)), (element, one) => {
    write(element.querySelector(".what")!, one.text);
    const fix = element.querySelector(".fix");
    if (fix) write(fix, one.fix);
  });
}

export function show_problems(problems: Problem[], known: boolean): void {
  keyed(find("problem-list"), shown_of(problems), (one) => one.key, create, update);
  find("no-problems").hidden = problems.length > 0 || !known;
}
