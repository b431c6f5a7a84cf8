// A hue and a pattern for each model: eight hues that people with any colour vision tell apart, four
// patterns of each. Names stand beside them everywhere, so what repeats beyond 32 models is still told.

const HUES = 8;
const PATTERNS = 4;

export class Palette {
  private slots = new Map<string, number>();

  /** Classes of the model: "hue-3 pattern-1". A model keeps its own. */
  classes(model: string): string {
    let slot = this.slots.get(model);
    if (slot === undefined) {
      slot = this.slots.size;
      this.slots.set(model, slot);
    }
    return `hue-${slot % HUES} pattern-${Math.floor(slot / HUES) % PATTERNS}`;
  }
}
