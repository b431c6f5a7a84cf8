// Helpers for elements. They change an element only if its content differs, since most updates change little.

export function find<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  classes = "",
  text = "",
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

/** Labels cells for narrow screens, where rows become lists and the table head is hidden. */
export function label_cells(row: HTMLElement, heads: string[]): void {
  [...row.children].forEach((cell, index) => ((cell as HTMLElement).dataset.label = heads[index] ?? ""));
}

export function write(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function style(element: HTMLElement, name: string, value: string): void {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}

/** Replaces the children of `parent`, reusing elements with the same key. */
export function keyed<T>(
  parent: HTMLElement,
  items: T[],
  key: (item: T) => string,
  create: (item: T) => HTMLElement,
  update: (element: HTMLElement, item: T) => void,
): void {
  const old = new Map<string, HTMLElement>();
  for (const child of parent.children) old.set((child as HTMLElement).dataset.key ?? "", child as HTMLElement);
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = old.get(name);
    old.delete(name);
    if (!element) {
      element = create(item);
      element.dataset.key = name;
    }
    if (element === at) {
      at = at.nextElementSibling;
    } else {
      parent.insertBefore(element, at);
    }
    update(element, item);
  }
  for (const gone of old.values()) gone.remove();
}
