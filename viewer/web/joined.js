// A row of buttons of which one is pressed: a key of the store and its values.

// choices: [value, text, title]; the first is pressed where the store has none. Returns what ends it.
export function joined(box, store, key, label, choices) {
  const group = Object.assign(document.createElement("div"), { className: "joined" });
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  const buttons = choices.map(([value, text, title]) => {
    const button = Object.assign(document.createElement("button"), { textContent: text, title: title ?? text });
    button.dataset[key] = value;
    button.addEventListener("click", () => store.set({ [key]: value }));
    return button;
  });
  const press = () => {
    const now = choices.some(([value]) => value === store.state[key]) ? store.state[key] : choices[0][0];
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", choices[i][0] === now));
  };
  group.append(...buttons);
  box.append(group);
  press();
  return store.subscribe([key], press);
}
