"use strict";
// Everything that a session says is put into the page as text. Nothing is parsed as markup.
const byId = (id) => document.getElementById(id);
const blocks = (name) => [...document.querySelectorAll(`script[data-block="${name}"]`)].map((one) => {
  const value = JSON.parse(one.textContent);
  one.remove();
  return value;
});
const [session] = blocks("session");
// The messages, in slices. A slice is parsed when a message of it is needed.
const slices = [...document.querySelectorAll('script[data-block="messages"]')];
const parsed = [];
const message = (index) => {
  const at = Math.floor(index / session.slice);
  if (parsed[at] === undefined) {
    parsed[at] = JSON.parse(slices[at].textContent);
    slices[at].remove();
  }
  return parsed[at][index % session.slice];
};
const requests = session.requests, compactions = session.compactions, states = session.states;
const fates = new Map(session.fates);
const everything = Array.from({ length: session.messages }, (_, index) => index);
const ROW = 26;
const number = (value) => value.toLocaleString("en");
const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
const span = (chapter) => (chapter.mark === chapter.to ? chapter.mark : `${chapter.mark} to ${chapter.to}`);
let current = requests.length - 1;

const make = (tag, name, text) => {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
};
// The state of a message in the views after a compaction.
const stateAt = (index, compaction) => {
  let state = 0;
  for (const [from, to] of fates.get(index) ?? []) if (from <= compaction) state = to;
  return state;
};
const isAbsent = (state) => states[state] === "folded" || states[state] === "dropped";
const body = (text) => text.replace(/^<context_record>\s*(\[[^\n]*\]\n)?/, "");
const firstLine = (text) => text.slice(0, 300).replace(/\s+/g, " ");

// A list of rows of one height, of which only the visible ones are in the page.
class List {
  constructor(id, fill, open) {
    this.box = byId(id); this.fill = fill; this.open = open; this.items = []; this.chosen = 0;
    this.spacer = this.box.appendChild(make("div", "spacer"));
    this.box.addEventListener("scroll", () => this.draw());
    this.box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
  }
  show(items) {
    this.items = items;
    this.chosen = Math.min(this.chosen, Math.max(0, items.length - 1));
    this.spacer.style.height = `${items.length * ROW}px`;
    this.draw();
  }
  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 5);
    const last = Math.min(this.items.length, first + Math.ceil(this.box.clientHeight / ROW) + 10);
    const rows = [];
    for (let place = first; place < last; place += 1) {
      const row = this.fill(this.items[place]);
      row.style.top = `${place * ROW}px`;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(place === this.chosen));
      if (place === this.chosen) row.classList.add("current");
      row.addEventListener("click", () => { this.chosen = place; this.draw(); this.open(this.items[place]); });
      rows.push(row);
    }
    this.spacer.replaceChildren(...rows);
  }
  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[event.key];
    if (event.key === "Enter" && this.items.length) this.open(this.items[this.chosen]);
    if (step === undefined) return;
    event.preventDefault();
    this.chosen = Math.max(0, Math.min(this.items.length - 1, this.chosen + step));
    const top = this.chosen * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
    this.draw();
  }
}

const strip = (index) => {
  const made = make("span", "strip"), total = requests.length;
  const born = lowerBound(index + 1);
  const changes = [[born, 0], ...(fates.get(index) ?? []).map(([from, to]) => [compactions[from].request, to]), [total, 0]];
  let at = 0;
  const add = (until, name) => {
    const part = make("i", name);
    part.style.width = `${(100 * (until - at)) / total}%`;
    made.append(part);
    at = until;
  };
  add(born, "");
  for (let place = 0; place + 1 < changes.length; place += 1) add(Math.max(at, changes[place + 1][0]), states[changes[place][1]]);
  return made;
};
// The first request that shows so many messages.
const lowerBound = (shows) => {
  let low = 0, high = requests.length;
  while (low < high) { const middle = (low + high) >> 1; if (requests[middle][0] < shows) low = middle + 1; else high = middle; }
  return low;
};
const messageRow = (index, state) => {
  const [mark, role, tokens, text] = message(index);
  const row = make("div", `row ${role === "user" ? "human" : ""}`);
  row.append(make("span", "mark", mark), make("span", "role", role), make("span", "text", firstLine(text) || "(empty)"));
  row.append(make("span", `state ${states[state]}`, states[state]), make("span", "tokens", number(tokens)), strip(index));
  return row;
};
const historyList = new List("history", (index) => {
  const request = requests[current], state = stateAt(index, request[3]);
  const row = messageRow(index, state);
  if (index >= request[0] || isAbsent(state)) row.classList.add("absent");
  return row;
}, (index) => openMessage(index));
const viewList = new List("view", (item) => {
  if (item.chapter === undefined) return messageRow(item.index, stateAt(item.index, requests[current][3]));
  const chapter = session.chapters[item.chapter];
  const row = make("div", "row chapter");
  row.append(make("span", "mark", chapter.mark), make("span", "role", "chapter"));
  row.append(make("span", "text", `${chapter.mark === chapter.to ? "" : `to ${chapter.to}: `}${firstLine(body(chapter.text))}`));
  row.append(make("span", "tokens", `${number(chapter.tokens)} for ${number(chapter.original_tokens)}`));
  return row;
}, (item) => (item.chapter === undefined ? openMessage(item.index) : openChapter(item.chapter)));

const openDetail = (title, fate, text, originals) => {
  byId("detail-title").textContent = title;
  byId("detail-fate").textContent = fate;
  byId("detail-text").textContent = text;
  byId("detail-originals").replaceChildren(...originals);
  if (!byId("detail").open) byId("detail").showModal();
  byId("detail").scrollTop = 0;
};
const openMessage = (index) => {
  const [mark, role, tokens, text, more] = message(index);
  const born = lowerBound(index + 1) + 1;
  const changes = (fates.get(index) ?? []).map(([from, to]) => `${states[to]} from request ${number(compactions[from].request + 1)}`);
  const fate = [born > requests.length ? "in no request yet" : `kept from request ${number(born)}`, ...changes].join(", ");
  openDetail(`${mark} ${role}, ${number(tokens)} tokens`, fate, more ? `${text}\n… ${number(more)} more characters` : text, []);
};
const openChapter = (place) => {
  const chapter = session.chapters[place], originals = [];
  for (let index = chapter.start; index < Math.min(chapter.stop, chapter.start + 200); index += 1) {
    const button = make("button", "", `${message(index)[0]} ${message(index)[1]}  ${firstLine(message(index)[3])}`);
    button.addEventListener("click", () => openMessage(index));
    originals.push(button);
  }
  const size = `${number(chapter.tokens)} tokens in place of ${number(chapter.original_tokens)}; ${counted(chapter.rounds, "round")}`;
  openDetail(`Chapter ${span(chapter)}`, size, chapter.text, originals);
};

const matching = (text) => {
  const wanted = byId("search").value.trim().toLowerCase();
  return !wanted || text.toLowerCase().includes(wanted);
};
const messageMatches = (index) => matching(`${message(index)[0]} ${message(index)[1]} ${message(index)[3]}`);
const viewItems = (request) => {
  const [shows, , , compaction] = request;
  const items = compactions[compaction].chapters.map((chapter) => ({ chapter, at: session.chapters[chapter].start - 0.5 }));
  for (let index = 0; index < shows; index += 1) if (!isAbsent(stateAt(index, compaction))) items.push({ index, at: index });
  return items.sort((one, other) => one.at - other.at);
};
const keyOf = (item, compaction) => (item.chapter === undefined ? `m${item.index}:${stateAt(item.index, compaction)}` : `c${item.chapter}`);

const update = () => {
  const request = requests[current], [shows, used, reported, compaction] = request;
  const isNow = current === requests.length - 1;
  let items = viewItems(request);
  byId("view-title").textContent = `${isNow ? "Next request" : "Sent"}: ${number(items.length)} messages and chapters`;
  if (byId("compare").checked) {
    const base = requests[Math.max(0, Math.min(requests.length, Number(byId("base").value) || 1) - 1)];
    const had = new Set(viewItems(base).map((item) => keyOf(item, base[3])));
    items = items.filter((item) => !had.has(keyOf(item, compaction)));
  }
  const all = byId("search").value.trim() ? everything.filter(messageMatches) : everything;
  historyList.show(all);
  viewList.show(items.filter((item) => (item.chapter === undefined ? messageMatches(item.index) : matching(session.chapters[item.chapter].text))));
  byId("history-title").textContent = `History: ${number(shows)} of ${number(session.messages)} messages so far`;
  const made = compactions[compaction];
  const since = compaction && made.trigger !== "now" ? `; last compaction before request ${number(made.request + 1)}: ${made.trigger}, ${number(made.before_tokens)} → ${number(made.after_tokens)} tokens` : "";
  const count = reported === null ? "" : `, ${number(reported)} reported by the provider`;
  byId("request").textContent = `${isNow ? "Now" : `Request ${number(current + 1)} of ${number(requests.length)}`}: ${number(used)} of ${number(session.size)} tokens${count}${since}`;
  byId("slider").value = String(current);
  draw();
};
const choose = (place) => { current = Math.max(0, Math.min(requests.length - 1, place)); update(); };
const jump = (step) => {
  const places = compactions.slice(1).map((one) => one.request);
  const found = step > 0 ? places.find((place) => place > current) : places.filter((place) => place < current).pop();
  if (found !== undefined) choose(found);
};

const draw = () => {
  const canvas = byId("chart"), scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = 130;
  canvas.width = width * scale; canvas.height = height * scale;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const colour = (name) => { const probe = make("i", name); document.body.append(probe); const value = getComputedStyle(probe).backgroundColor; probe.remove(); return value; };
  pen.scale(scale, scale);
  const most = requests.reduce((top, one) => Math.max(top, one[1], one[2] ?? 0), session.size);
  const x = (place) => (requests.length > 1 ? (place * (width - 2)) / (requests.length - 1) + 1 : width / 2);
  const y = (tokens) => height - 4 - (tokens * (height - 14)) / most;
  pen.fillStyle = pen.strokeStyle = colour("folded");
  pen.globalAlpha = 0.35;
  pen.beginPath(); pen.moveTo(x(0), height);
  requests.forEach((one, place) => pen.lineTo(x(place), y(one[1])));
  pen.lineTo(x(requests.length - 1), height); pen.fill();
  pen.globalAlpha = 1; pen.fillStyle = colour("clipped");
  requests.forEach((one, place) => { if (one[2] !== null) pen.fillRect(x(place) - 1, y(one[2]) - 1, 2, 2); });
  pen.strokeStyle = colour("dropped"); pen.setLineDash([5, 4]);
  pen.beginPath(); pen.moveTo(0, y(session.size)); pen.lineTo(width, y(session.size)); pen.stroke();
  pen.setLineDash([]); pen.strokeStyle = colour("kept");
  for (const one of compactions.slice(1)) if (one.trigger !== "now") { pen.beginPath(); pen.moveTo(x(one.request), 0); pen.lineTo(x(one.request), height); pen.stroke(); }
  pen.strokeStyle = style.color; pen.lineWidth = 2;
  pen.beginPath(); pen.moveTo(x(current), 0); pen.lineTo(x(current), height); pen.stroke();
};

byId("title").textContent = document.title = `Session ${session.title}`;
const done = compactions.filter((one) => one.trigger && one.trigger !== "now").length;
byId("facts").textContent = `${counted(session.messages, "message")}, ${counted(requests.length, "request")}, ${counted(done, "compaction")}, budget ${number(session.size)} tokens`;
if (session.edited) byId("edited").textContent = "The history was edited: marks in past chapters count the messages that are left.";
byId("has-reported").hidden = requests.every((one) => one[2] === null);
byId("slider").max = String(requests.length - 1);
byId("slider").addEventListener("input", () => choose(Number(byId("slider").value)));
byId("previous").addEventListener("click", () => jump(-1));
byId("next").addEventListener("click", () => jump(1));
byId("base").max = String(requests.length);
for (const id of ["compare", "base"]) byId(id).addEventListener("input", update);
let pause = 0;
byId("search").addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(update, 120); });
byId("chart").addEventListener("click", (event) => choose(Math.round((event.offsetX / byId("chart").clientWidth) * (requests.length - 1))));
document.addEventListener("keydown", (event) => {
  if (event.target instanceof HTMLInputElement || byId("detail").open) return;
  if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
  if (event.key === "[") jump(-1);
  if (event.key === "]") jump(1);
});
window.addEventListener("resize", draw);
update();
document.documentElement.dataset.readyMs = String(Math.round(performance.now()));
