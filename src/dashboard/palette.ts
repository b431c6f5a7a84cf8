// A hue and a pattern for each model: eight hues that are distinguishable with any colour vision, in four
// patterns each. They repeat beyond 32 models, so the page shows names beside them everywhere.

const HUES = 8;
const PATTERNS = 4;

export class Palette {
  private slots = new Map<string, number>();

  /** Classes of the model: "hue-3 pattern-1". They stay the same for a model. */
  classes(model: string): string {
    let slot = this.slots.get(model);
    if (slot === undefined) {
      slot = this.slots.size;
      this.slots.set(model, slot);
    }
    return `hue-${slot % HUES} pattern-${Math.floor(slot / HUES) % PATTERNS}`;
  }
}
