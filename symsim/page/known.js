/* What a symbol is, in place: pointed at, tapped, or reached by Tab and the arrows. Known are the left sides of equations and the symbols of
   tables that say what they are; a formula is only looked through when somebody asks. */
const known = new Map();
const one = math => {
  const row = math.firstElementChild, children = [...row.children];
  const equals = children.findIndex(e => e.textContent === "=");
  const left = equals === -1 ? children : children.slice(0, equals);
  return left.length === 1 ? left[0].outerHTML : "";
};
const learn = (math, said) => {
  const key = math === null ? "" : one(math);
  if (key !== "" ? !known.has(key) : false) known.set(key, said);
};
for (const row of document.querySelectorAll("tr[data-is]")) {
  learn(row.querySelector("math"), {means: row.dataset.is, value: row.dataset.value, at: row.id});
}
for (const cell of document.querySelectorAll("td.sym")) {
  const value = cell.parentElement.querySelector("td.r");
  learn(cell.querySelector("math"), {means: cell.nextElementSibling.textContent, value: value === null ? "" : value.textContent, at: ""});
}

/* symbols of a formula, outermost first; an index below a base that nothing knows is not a symbol of its own */
const texts = new WeakMap();
const text = element => {
  // as it was before it was marked
  if (!texts.has(element)) texts.set(element, element.outerHTML);
  return texts.get(element);
};
const WHOLE = new Set(["msub", "msubsup", "munder", "mover", "munderover"]);
const symbols = element => {
  if (known.has(text(element))) return [element];
  if (WHOLE.has(element.localName)) return [];
  return [...element.children].flatMap(symbols);
};
const box = document.getElementById("known");
let pinned = false, marked = [];
const hide = () => { box.hidden = true; pinned = false; marked.forEach(e => e.removeAttribute("class")); marked = []; };
const line = element => {
  const {means, value, at} = known.get(text(element)), made = document.createElement("p");
  const math = element.closest("math").cloneNode(false);
  math.removeAttribute("tabindex");
  math.append(element.cloneNode(true));
  made.append(math, ` ${means}${value === "" ? "" : `: ${value}`}`);
  if (at !== "") {
    const link = document.createElement("a");
    link.href = `#${at}`;
    link.textContent = `(${at.slice(2)})`;
    made.append(" ", link);
  }
  return made;
};
const show = (found, beside) => {
  hide();
  if (found.length === 0) return;
  const different = [...new Map(found.map(e => [text(e), e])).values()];
  box.replaceChildren(...different.map(line));
  marked = found;
  marked.forEach(e => e.setAttribute("class", "asked"));
  box.hidden = false;
  const at = beside.getBoundingClientRect(), room = box.getBoundingClientRect();
  const below = at.bottom + 8 + room.height > innerHeight ? Math.max(4, at.top - 8 - room.height) : at.bottom + 8;
  box.style.top = `${below}px`;
  box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - room.width - 16))}px`;
};
const asked = target => {
  const math = target.closest("math");
  if (math === null ? true : box.contains(math)) return null;
  return symbols(math).find(e => e.contains(target)) || null;
};
document.addEventListener("pointerover", event => {
  if (pinned ? true : box.contains(event.target)) return;
  const found = asked(event.target);
  if (found !== null) show([found], found);
  else if (event.target.closest("math") === null) hide();
});
document.addEventListener("click", event => {
  if (box.contains(event.target)) return;
  const found = asked(event.target);
  if (found === null) hide();
  else { show([found], found); pinned = true; }
});

/* one stop of Tab for each table, block of equations and paragraph; arrows go on inside it, Enter to the equation of what is asked, Escape back */
let asking = null;
const blocks = [...document.querySelectorAll("section .scroll, section > p")];
const formulas = block => [...block.querySelectorAll("math")];
for (const block of blocks) {
  const first = formulas(block)[0];
  if (first !== undefined) first.tabIndex = 0;
}
document.addEventListener("focusin", event => {
  if (event.target.localName === "math") { show(symbols(event.target), event.target); pinned = true; }
  else if (!box.contains(event.target)) hide();
});
document.addEventListener("keydown", event => {
  if (event.key === "Escape") {
    if (box.contains(document.activeElement)) asking.focus();
    hide();
  }
  const link = box.hidden ? null : box.querySelector("a");
  if (event.key === "Enter" && link !== null && document.activeElement.localName === "math") {
    asking = document.activeElement;
    link.focus();
    event.preventDefault();
  }
  const way = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
  const math = document.activeElement;
  if (way === undefined ? true : math.localName !== "math") return;
  const inside = formulas(math.closest(".scroll, p")), next = inside[inside.indexOf(math) + way];
  if (next === undefined) return;
  event.preventDefault();
  math.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
addEventListener("scroll", () => { if (!pinned) hide(); }, {passive: true});
