
/* state: by position of an input its value, as the formulas take it. kept: another state, or none. */
const base = PAGE.inputs.map(one => one.base);
let state = base.slice(), kept = null;
const at = id => document.getElementById("live-" + id);
const STEPS = 120, REACH = 16;

/* numbers in words */
// a number that lies between two of four digits goes to the even one, as in the report: JavaScript rounds it up
const rounded = x => {
  const half = /^(-?\d\.\d\d[02468])50*e(.*)$/.exec(x.toExponential(60));
  return half ? Number(`${half[1]}e${half[2]}`) : Number(x.toPrecision(4));
};
const four = x => Number.isFinite(x) ? (x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e15) ? rounded(x).toExponential(3) : rounded(x).toLocaleString("en", {maximumSignificantDigits: 4}).replace(/,/g, "\u2009")) : "none";
const scaled = (x, base, names, unit) => {
  let k = 0;
  while (k < names.length - 1 && Math.abs(x) >= base ** (k + 1)) k++;
  return `${four(x / base ** k)} ${names[k]}${unit}`.trim();
};
const spoken = (x, unit, name) => {
  if (unit === "s") return x === 0 ? "0 s" : Math.abs(x) >= 1 ? `${four(x)} s` : Math.abs(x) >= 1e-3 ? `${four(x * 1e3)} ms` : `${four(x * 1e6)} \u00b5s`;
  if (unit === "byte") return scaled(x, 1024, ["byte", "KiB", "MiB", "GiB", "TiB", "PiB"], "");
  if (unit === "FLOP") return scaled(x, 1000, ["", "k", "M", "G", "T", "P", "E", "Z"], "FLOP");
  if (name === "mfu" || name === "hfu") return `${four(100 * x)} %`;
  if (name.startsWith("params.")) return scaled(x, 1000, ["", "k", "M", "B", "T"], "");
  return `${four(x)} ${unit === "1" ? "" : unit === "1/s" ? "/s" : unit}`.trim();
};

/* what a state gives, or the sentence of the rule that refuses it */
const given = values => Object.fromEntries(PAGE.inputs.map((one, k) => [one.name, values[k]]));
const chosen = values => PAGE.variants[PAGE.inputs.reduce((place, one, k) => one.labels ? place * one.values.length + values[k] : place, 0)];
const refusal = values => {
  const which = chosen(values), set = given(values);
  if (typeof which === "string") return which;
  // a degree that is not moved is 1
  const above = PAGE.inputs.find(one => one.within && set[one.name] > (set[one.within] ?? 1));
  if (above) return `${above.name} is at most ${above.within}=${set[above.within] ?? 1}`;
  for (const number of PAGE.rules[which]) {
    const rule = PAGE.rule[number];
    let place = 0;
    for (const k of rule.over) place = place * PAGE.inputs[k].values.length + PAGE.inputs[k].values.indexOf(values[k]);
    if (rule.broken[place]) return rule.sentences[rule.broken[place] - 1];
  }
  return "";
};
const evaluated = values => {
  const why = refusal(values), set = given(values);
  if (why) return {why};
  const found = {...kernel(set, chosen(values)), ...(set.memory === undefined ? {} : {"memory.capacity": set.memory})};
  return Object.values(found).every(Number.isFinite) ? found : {why: "what a number that is 0 divides has no value"};
};

/* the section */
const verdict = found => {
  if (found.why) return `Cannot run: ${found.why}.`;
  const peak = found["memory.peak"], kept = found["memory.reserve"], room = found["memory.capacity"];
  const beside = kept ? `, beside which ${spoken(kept, "byte", "")} should stay free` : "";
  if (found["time.step"] === undefined) return `A rank needs ${spoken(peak, "byte", "")} of memory${beside}.`;
  const memory = `${peak + kept <= room ? "fits" : peak <= room ? "fits, tight" : "does not fit"}: ${spoken(peak, "byte", "")} of ${spoken(room, "byte", "")}${beside}`;
  // degrees and stages that are moved take other ranks, and tokens a second are of all of them
  const ranks = found.world === undefined ? "" : ` on ${four(found.world)} rank${found.world === 1 ? "" : "s"}`;
  return `One step takes ${spoken(found["time.step"], "s", "")}${ranks}: ${four(found.tokens_per_second)} tokens a second, MFU ${spoken(found.mfu, "1", "mfu")}; it ${memory}.`;
};
const bar = (parts, found, most, limit, unit, words) => {
  let x = 0, drawn = "";
  parts.forEach((part, k) => {
    const wide = Math.max(0, found[part.name]) / most * 1000;
    drawn += `<rect x="${x.toFixed(2)}" width="${wide.toFixed(2)}" height="24" fill="${PAGE.colours[k % PAGE.colours.length]}"><title>${part.label}: ${spoken(found[part.name], unit, "")}</title></rect>`;
    x += wide;
  });
  if (limit !== undefined) drawn += `<rect x="${Math.min(997, limit / most * 1000).toFixed(2)}" width="3" height="24" fill="currentColor"/>`;
  return `<svg viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label="${words}">${drawn}</svg>`;
};
const total = (parts, found) => parts.reduce((sum, part) => sum + Math.max(0, found[part.name]), 0);
const picture = (title, unit, parts, now, then, limit) => {
  const shown = [["now", now], ...(then ? [["kept", then]] : [])].filter(([, found]) => !found.why);
  if (!shown.length || !parts.length) return "";
  const most = Math.max(...shown.map(([, found]) => Math.max(total(parts, found), found[limit] || 0)));
  const drawn = shown.map(([word, found]) => {
    const room = found[limit] === undefined ? "" : `, of ${spoken(found[limit], unit, "")} (the mark)`;
    const words = `${then ? `${word}: ` : ""}${title} ${spoken(total(parts, found), unit, "")}${room}`;
    return `<p>${words}</p>${bar(parts, found, most, found[limit], unit, words)}`;
  });
  const key = parts.map((part, k) => [part, k]).filter(([part]) => shown.some(([, found]) => found[part.name] > 0)).map(([part, k]) => `<li><i style="background:${PAGE.colours[k % PAGE.colours.length]}"></i>${part.label} ${shown.map(([, found]) => spoken(found[part.name], unit, "")).join(" | ")}</li>`);
  return `<figure>${drawn.join("")}<ul class="key">${key.join("")}</ul></figure>`;
};
const results = (now, then) => {
  at("results").tHead.innerHTML = `<tr><th>result</th><th class="r">now</th>${then ? '<th class="r">kept</th><th class="r">change</th>' : ""}</tr>`;
  at("results").tBodies[0].innerHTML = PAGE.results.map(({name, meaning, unit}) => {
    const cell = found => found.why ? "cannot run" : spoken(found[name], unit, name);
    const change = then && !now.why && !then.why && then[name] ? `${now[name] >= then[name] ? "+" : "\u2212"}${four(Math.abs(100 * (now[name] / then[name] - 1)))} %` : "";
    return `<tr><td>${meaning} <code>${name}</code></td><td class="r">${cell(now)}</td>${then ? `<td class="r">${cell(then)}</td><td class="r">${change}</td>` : ""}</tr>`;
  }).join("");
};

/* beside a state: the numbers of the machine that move its step most, and how far a size can go */
// of a hundredth of a percent, times a hundred: what the report says, of elasticities
const MOST = 3, MORE = 1.0001, LARGE = 0.001;
const changed = (k, value) => state.map((old, other) => other === k ? value : old);
const meaning = k => at(`row-${k}`).title;
const binding = now => {
  const step = now["time.step"];
  const shares = step === undefined ? [] : PAGE.inputs.map((one, k) => {
    const still = one.whole || !state[k] || (one.share && state[k] * MORE ** 2 > 1);
    const at = more => still ? now : evaluated(changed(k, state[k] * more));
    const change = (there, here) => there.why ? 0 : (there["time.step"] / here["time.step"] - 1) * 0.01 / (MORE - 1);
    const first = at(MORE), share = change(first, now);
    // a step of a count of tiles is no slope: the change behind it
    const behind = Math.abs(share) > LARGE ? change(at(MORE ** 2), first) : share;
    return [k, Math.abs(behind) < Math.abs(share) / 2 ? behind : share];
  });
  const first = shares.filter(([, share]) => share).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, MOST);
  const row = ([k, share]) => `<tr><td><code>${PAGE.inputs[k].name}</code></td><td>${meaning(k)}</td><td class="r">${share < 0 ? "\u2212" : "+"}${four(Math.abs(100 * share))} %</td></tr>`;
  return first.map(row).join("");
};
const furthest = now => {
  const fits = found => !found.why && found["memory.peak"] + found["memory.reserve"] <= found["memory.capacity"];
  const said = now["memory.capacity"] === undefined ? [] : PAGE.inputs.map((one, k) => {
    if (!one.fills) return "";
    const most = possible(k).filter(value => fits(evaluated(changed(k, value)))).pop();
    return most === undefined ? `no value of ${one.name}` : `${one.name} = ${shownValue(k, most)}${most === possible(k).at(-1) ? " or more" : ""}`;
  }).filter(Boolean);
  return said.length ? `The largest that fits with the reserve, each alone and all else as set: ${said.join("; ")}.` : "";
};

/* sliders, and menus of what has names: whole numbers by their place among those that are possible, others by steps of equal ratio around the base */
const possible = k => PAGE.possible[k];
const places = k => PAGE.inputs[k].whole ? possible(k).length - 1 : STEPS;
const valueAt = (k, place) => {
  const one = PAGE.inputs[k];
  if (one.whole) return possible(k)[place];
  if (one.share) return Math.max(one.zero ? 0 : 1, place) / STEPS;
  if (one.least) return one.least * REACH ** (place / STEPS);
  return place === STEPS / 2 ? one.base : (one.base || one.scale) * REACH ** (2 * place / STEPS - 1);
};
const placeOf = (k, value) => {
  const one = PAGE.inputs[k];
  if (one.whole) return Math.max(0, possible(k).indexOf(value));
  if (one.share) return Math.round(value * STEPS);
  if (one.least) return Math.round(Math.log(value / one.least) / Math.log(REACH) * STEPS);
  const wanted = Math.log(value / (one.base || one.scale)) / Math.log(REACH);
  return value > 0 ? Math.round(Math.min(1, Math.max(-1, wanted)) * STEPS / 2 + STEPS / 2) : 0;
};
const shownValue = (k, value) => PAGE.inputs[k].labels ? PAGE.inputs[k].labels[value] : PAGE.inputs[k].whole ? value.toLocaleString("en").replace(/,/g, "\u2009") : String(Number((value / PAGE.inputs[k].scale).toPrecision(12)));
const accepted = (k, value) => {
  const one = PAGE.inputs[k];
  if (one.whole) return possible(k).includes(value);
  return value === 0 ? one.zero : value >= (one.least || 1 / PAGE.largest) && value <= (one.share ? 1 : PAGE.largest);
};

/* the address */
const written = (values, before) => values.map((v, k) => v === base[k] ? "" : `${before}${PAGE.inputs[k].name}=${v}`).filter(Boolean);
const toAddress = () => {
  const parts = [...written(state, ""), ...(kept ? ["kept=1", ...written(kept, "kept.")] : [])];
  history.replaceState(null, "", parts.length ? `#${parts.join("&")}` : location.pathname + location.search);
};
const fromAddress = () => {
  if (!location.hash.includes("=")) return;
  const found = new Map(location.hash.slice(1).split("&").map(part => part.split("=")));
  const read = before => PAGE.inputs.map((one, k) => {
    const value = Number(found.get(before + one.name) ?? NaN);
    return accepted(k, value) ? value : base[k];
  });
  state = read("");
  kept = found.has("kept") ? read("kept.") : null;
};

const show = () => {
  const now = evaluated(state), then = kept && evaluated(kept);
  at("verdict").textContent = verdict(now);
  at("verdict").classList.toggle("refused", Boolean(now.why));
  at("pictures").innerHTML = picture("a step takes", "s", PAGE.time, now, then, "") + picture("the fullest rank and its reserve:", "byte", PAGE.memory, now, then, "memory.capacity");
  results(now, then);
  const rows = now.why ? "" : binding(now);
  at("binding").tBodies[0].innerHTML = rows;
  at("binding").hidden = !rows;
  at("furthest").textContent = now.why ? "" : furthest(now);
  at("forget").hidden = !kept;
  PAGE.inputs.forEach((one, k) => {
    at(`row-${k}`).classList.toggle("moved", state[k] !== base[k]);
    const slider = at(`input-${k}`), value = at(`value-${k}`);
    slider.value = placeOf(k, state[k]);
    if (one.labels) return;
    slider.setAttribute("aria-valuetext", `${shownValue(k, state[k])} ${one.unit}`.trim());
    if (document.activeElement === value) return;
    value.value = shownValue(k, state[k]);
    value.removeAttribute("aria-invalid");
  });
};
let waiting = false;
const soon = () => {
  toAddress();
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; show(); });
};
PAGE.inputs.forEach((one, k) => {
  if (!one.labels) {
    at(`input-${k}`).min = one.share && !one.zero ? 1 : 0;
    at(`input-${k}`).max = places(k);
  }
  at(`input-${k}`).addEventListener("input", event => { state[k] = valueAt(k, Number(event.target.value)); soon(); });
  if (!one.whole) at(`value-${k}`).addEventListener("input", event => {
    const value = Number(event.target.value) * one.scale, taken = event.target.value !== "" && accepted(k, value);
    event.target.setAttribute("aria-invalid", String(!taken));
    if (taken) { state[k] = value; soon(); }
  });
  if (!one.whole) at(`value-${k}`).addEventListener("blur", show);
});
at("keep").addEventListener("click", () => { kept = state.slice(); soon(); });
// the button hides with what it forgets
at("forget").addEventListener("click", () => { kept = null; at("keep").focus(); soon(); });
at("reset").addEventListener("click", () => { state = base.slice(); soon(); });
addEventListener("hashchange", () => { fromAddress(); show(); });
fromAddress();
show();
