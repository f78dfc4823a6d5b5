// The page: draw, type or show something, be answered, teach. Plain JavaScript over the HTTP service.

const $ = (id) => document.getElementById(id);
const PEN = 8, SIDE = 224, EXTENT = 152; // of a drawing that is sent: pixels of pen, paper and the larger of its sides
const PICTURES = 32; // files taken at once: they fit into one request
const KINDS = {
  drawing: { tab: "Draw", title: "Draw something", name: "drawing",
    hint: "It answers while you draw.",
    start: ["Draw something of your own. It says “I don't know”: give it a name.",
      "Draw it again. It answers, and shows the drawing that it remembered."] },
  text: { tab: "Text", title: "Ask a question", name: "question",
    hint: "It answers with the meaning that it was taught, and says why.",
    start: ["Ask about something new. It says “I don't know”: name what is meant.",
      "Ask again in other words. It answers, and shows the sentence that it remembered."] },
  picture: { tab: "Pictures", title: "Show a picture", name: "picture",
    hint: "Pictures stay on this machine.",
    start: ["Show it a photo of a thing, by file or camera, and give it a name.",
      "Show it another photo of the same thing. It answers, and shows the photo that it remembered."] },
};

let memories = [], memory = null, limits = {};
let classes = [];
let current = null; // the example in question: {value: what is sent, image: its data URL or null}
let several = []; // the examples in question where there is more than one
let turn = 0; // counts questions, so that a late answer to an old one is not shown

// ---- talking to the service ----

let token = new URLSearchParams(location.hash.slice(1)).get("token") || sessionStorage.getItem("token") || "";
if (location.hash.includes("token=")) {
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
}

async function request(path, body, query = {}) {
  const address = new URL(path, location.origin);
  if (memory) address.searchParams.set("memory", memory.name);
  for (const [name, value] of Object.entries(query)) address.searchParams.set(name, value);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  if (body) headers["content-type"] = "application/json";
  const options = { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), cache: "no-cache" };
  const response = await fetch(address, options).catch(() => { throw new Error("The service cannot be reached."); });
  if (response.ok) return response;
  if (response.status === 401) {
    const given = await ask({ title: "This service asks for a token", text: "It was printed when the service started.", input: "" });
    if (given) { token = given; sessionStorage.setItem("token", token); return request(path, body, query); }
  }
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error || `The service answered ${response.status}.`);
}
const get = async (path, query) => (await request(path, null, query)).json();
const post = async (path, body) => (await request(path, body)).json();

// What goes wrong is told; nothing is left hanging.
const guarded = (action) => async (...given) => {
  try { return await action(...given); } catch (error) { toast(error.message); }
};

// ---- small helpers ----

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value; else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const button = (text, action, properties = {}) =>
  make("button", { type: "button", textContent: text, onclick: guarded(action), ...properties });
const percent = (share) => `${Math.round(100 * share)}%`;
const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

function ago(when) {
  const seconds = (new Date(when) - Date.now()) / 1000;
  for (const [unit, size] of [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (-seconds >= size) return relative.format(Math.round(seconds / size), unit);
  }
  return "just now";
}

// A typed name means the label that it looks like: 7 is the number where the number was taught.
const labelOf = (text) => classes.find((each) => String(each.label) === text.trim())?.label ?? text.trim();

const blobs = new Map(); // addresses of examples that were fetched: an <img> cannot show a token by itself
function image(id, alt) {
  const picture = make("img", { alt, loading: "lazy" }), key = `${memory.name}/${id}`;
  if (!blobs.has(key)) {
    blobs.set(key, request("/api/example", null, { id }).then((r) => r.blob()).then((blob) => URL.createObjectURL(blob)));
    if (blobs.size > 500) { const [oldest] = blobs.keys(); blobs.delete(oldest); }
  }
  blobs.get(key).then((address) => { picture.src = address; }, () => blobs.delete(key));
  return picture;
}

let toastTimer;
function toast(text, action = null, name = "Undo") {
  const undoing = button(name, () => { $("toast").classList.remove("on"); return action(); });
  $("toast").replaceChildren(make("span", { textContent: text }), ...(action ? [undoing] : []));
  $("toast").classList.add("on");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => $("toast").classList.remove("on"), action ? 9000 : 5000);
}

// Ask for a text, or for a yes; null where it was cancelled.
function ask({ title, text = "", input = null, ok = "OK" }) {
  $("dialog-title").textContent = title;
  $("dialog-text").textContent = text;
  $("dialog-input").hidden = input === null;
  $("dialog-input").value = input ?? "";
  $("dialog-ok").textContent = ok;
  $("dialog").returnValue = "";
  $("dialog").showModal();
  if (input !== null) $("dialog-input").select();
  return new Promise((resolve) => $("dialog").addEventListener("close", () => {
    const agreed = $("dialog").returnValue === "ok";
    resolve(agreed ? (input === null ? true : $("dialog-input").value.trim()) : null);
  }, { once: true }));
}

$("dialog-cancel").onclick = () => $("dialog").close();

// ---- asking ----

async function question(example, { draft = false } = {}) {
  current = example;
  const mine = ++turn;
  allowTeaching();
  if (!example) return showStart();
  const answer = await post("/api/explain", { example: example.value, draft });
  if (mine !== turn) return;
  example.answer = answer;
  showAnswer(answer);
  if (!draft) await refreshUnsure();
}

function allowTeaching() {
  $("teach-button").disabled = !current && !several.length;
  $("teach-button").textContent = several.length && !current ? `Teach all ${several.length}` : "Teach";
}

// Before the first question: what to try.
function showStart() {
  $("spoken").textContent = "";
  $("answer").className = "card answer";
  $("answer").hidden = several.length > 0;
  const steps = KINDS[memory.kind].start.map((text) => make("li", {}, make("span", { textContent: text })));
  const known = classes.slice(0, 3).map(({ label }) => String(label)), [first] = memory.suggestions;
  if (first) {
    const suggested = memory.suggestions.map((text) =>
      button(text, () => { $("question").value = text; return askText(); }, { className: "small" }));
    steps.unshift(make("li", {}, make("div", {}, "Ask one of these:", make("div", { className: "row" }, ...suggested))));
  } else if (known.length && memory.kind === "drawing") {
    steps.unshift(make("li", {}, make("span", { textContent: `Draw something it has seen once: ${known.join(", ")}.` })));
  }
  $("answer").replaceChildren(make("h2", { textContent: "Try it" }), make("ol", { className: "start" }, ...steps));
}

async function askSeveral(examples) {
  several = examples;
  await question(null);
  await listSeveral();
  await refreshUnsure();
}

// Several examples at once: a line for each.
async function listSeveral() {
  const examples = several, { answers } = await post("/api/ask", { examples: examples.map(({ value }) => value) });
  if (examples !== several) return;
  const unknown = answers.filter(({ known }) => !known).length;
  $("spoken").textContent = `${plural(answers.length, "answer")}, ${unknown} of them: I don't know`;
  $("answers").replaceChildren(make("h2", { textContent: plural(answers.length, KINDS[memory.kind].name) }), make("ul", {},
    ...answers.map((answer, i) => make("li", {},
      examples[i].image ? make("img", { src: examples[i].image, alt: "" }) : null,
      make("span", { className: "grow", textContent: examples[i].image ? examples[i].name : examples[i].value }),
      make("span", { className: answer.known ? "chip" : "chip unknown",
        textContent: answer.known ? `${answer.label} ${percent(answer.probability)}` : "I don't know" }),
      button("Why?", () => question(examples[i]), { className: "small", ariaLabel: `Why? ${examples[i].name ?? examples[i].value}` })))));
  $("answers").hidden = false;
}

function showAnswer(answer) {
  const box = $("answer"), sure = answer.known && answer.label !== null;
  box.className = sure ? "card answer" : "card answer unknown";
  box.hidden = false;
  $("spoken").textContent = sure ? `${answer.label}, ${percent(answer.probability)}`
    : answer.label === null ? "I don't know" : `I don't know. The nearest is ${answer.label}`;
  const parts = [], choosing = (label) => { pad.fresh = true; return teach(label); };
  if (answer.label === null) {
    parts.push(make("p", { className: "name", textContent: "I don't know" }),
      make("p", { className: "hint", textContent: "Nothing was taught yet." }));
  } else {
    const name = make("p", { className: "name" });
    name.append(sure ? String(answer.label) : "I don't know");
    name.append(make("small", { textContent: sure ? ` ${percent(answer.probability)}` : "" }));
    const says = sure ? "This looks like" : "Nothing like it was taught";
    parts.push(make("div", {}, make("p", { className: "says", textContent: says }), name));
  }
  const [nearest] = answer.because;
  if (nearest && memory.kind !== "text" && current.image) {
    parts.push(make("div", { className: "pair" },
      make("figure", {}, make("img", { src: current.image, alt: `Your ${KINDS[memory.kind].name}` }),
        make("figcaption", { textContent: "yours" })),
      make("figure", {}, image(nearest.id, `Remembered: ${nearest.label}`),
        make("figcaption", { textContent: `${sure ? "remembered" : "nearest"}: ${nearest.label}` }))));
  }
  if (!sure && !memory.readonly) {
    const named = answer.alternatives.slice(0, 3).map(({ label }) => button(String(label), () => choosing(label),
      { className: "small", title: `It is ${label}: teach it so` }));
    parts.push(make("div", { className: "row" },
      button("Name it", () => $("label").focus(), { className: "primary", id: "name-it" }),
      named.length ? make("span", { className: "hint", textContent: "or is it" }) : null, ...named));
  }
  if (sure) {
    parts.push(make("div", { className: "bars", role: "group", "aria-label": "Probabilities; click the right one to correct" },
      ...answer.alternatives.slice(0, 5).filter(({ probability }, i) => i < 2 || probability >= 0.005).map(({ label, probability }) => {
        const bar = button("", () => choosing(label), { disabled: memory.readonly, className: "bar", title: `It is ${label}: teach it so` });
        bar.setAttribute("aria-label", `${label}, ${percent(probability)}. Click if this is right`);
        bar.append(make("span", { textContent: String(label) }), make("b", { textContent: percent(probability) }), make("i"));
        bar.lastChild.style.setProperty("--share", percent(probability));
        return bar;
      })));
  }
  if (sure && !memory.readonly) {
    parts.push(make("div", { className: "row" },
      button("✓ Right", () => choosing(answer.label), { className: "small", title: "Remember this one too" }),
      button("✗ Wrong", () => { $("label").focus(); $("label").select(); }, { className: "small", id: "wrong" }),
      make("span", { className: "hint", textContent: "or click a name above" })));
  }
  const decided = answer.because.filter(({ similarity }, i) => i === 0 || similarity > 0.6 * nearest.similarity);
  if (decided.length && (sure || memory.kind === "text")) {
    parts.push(make("div", { className: "confirm" }, make("h2", { textContent: sure ? "Because it was taught" : "Nearest of what was taught" })),
      make("ul", { className: "because" }, ...decided.map(evidence)));
  }
  box.replaceChildren(...parts);
}

function evidence(taught) {
  const who = taught.who ? ` by ${taught.who}` : "";
  const when = make("small", { textContent: `similarity ${taught.similarity.toFixed(2)}, taught ${ago(taught.when)}${who}` });
  when.title = new Date(taught.when).toLocaleString();
  const text = memory.kind === "text" ? `“${taught.example}” is ` : "";
  return make("li", {}, memory.kind === "text" ? null : image(taught.id, ""),
    make("div", { className: "grow" }, text, make("b", { textContent: String(taught.label) }), when));
}

// ---- teaching ----

async function teach(label, example = current) {
  label = labelOf(String(label));
  if (!example || label === "") return $("label").focus();
  const isNew = !classes.some((each) => each.label === label);
  const { entry } = await post("/api/correct", { example: example.value, label });
  toast(isNew ? `Taught “${label}”.` : `Remembered as “${label}”.`, () => undo(entry));
  await changed();
}

async function teachMany(label, examples) {
  const { entry } = await post("/api/teach", { examples, label: labelOf(label) });
  toast(`Taught ${plural(examples.length, "example")} of “${label}”.`, () => undo(entry));
  await Promise.all([refresh(), askSeveral(several)]);
}

async function undo(entry) {
  await post("/api/undo", { entry });
  toast("Undone.");
  await changed();
}

$("teach").addEventListener("submit", guarded(async (event) => {
  event.preventDefault();
  const label = $("label").value.trim(), lines = memory.kind === "text" ? questions() : [];
  if (label && several.length && !current) { $("label").value = ""; return teachMany(label, several.map(({ value }) => value)); }
  // Who is quick names it before it was asked about.
  if (lines.length && !current) current = { value: lines[0], image: null };
  if (pad.asking) { clearTimeout(pad.asking); pad.asking = null; current = drawing(); }
  if (label && current) { $("label").value = ""; pad.fresh = true; }
  await teach(label);
}));

// ---- drawing ----

const pad = { strokes: [], down: false, fresh: false, asking: null, cursor: [320, 320], keyboard: false };
const paper = $("paper"), ink = paper.getContext("2d");

function render() {
  ink.clearRect(0, 0, paper.width, paper.height);
  drawStrokes(ink, pad.strokes, 13, (point) => point);
  if (pad.keyboard) {
    ink.strokeStyle = pad.down ? "#4f46e5" : "#9a99b0";
    ink.lineWidth = 3;
    ink.beginPath();
    ink.arc(...pad.cursor, 12, 0, 7);
    ink.stroke();
  }
}

function drawStrokes(context, strokes, pen, place) {
  Object.assign(context, { lineCap: "round", lineJoin: "round", lineWidth: pen, strokeStyle: "#1c1b29" });
  for (const stroke of strokes) {
    context.beginPath();
    const points = stroke.map(place);
    context.moveTo(...points[0]);
    for (let i = 1; i < points.length; i++) { // through the middles, so that corners of the mouse are round
      const [x, y] = points[i - 1], [u, v] = points[i];
      context.quadraticCurveTo(x, y, (x + u) / 2, (y + v) / 2);
    }
    context.lineTo(...points.at(-1));
    context.stroke();
  }
}

// The drawing as it is sent: in the middle, as large as those the network knows, with a pen of one width.
function drawing() {
  const points = pad.strokes.flat();
  if (!points.length) return null;
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = EXTENT / Math.max(right - left, bottom - top, 40);
  const canvas = make("canvas", { width: SIDE, height: SIDE }), context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, SIDE, SIDE);
  const place = ([x, y]) => [SIDE / 2 + scale * (x - (left + right) / 2), SIDE / 2 + scale * (y - (top + bottom) / 2)];
  drawStrokes(context, pad.strokes, PEN, place);
  const image = canvas.toDataURL("image/png");
  return { value: image, image };
}

const at = (event) => {
  const box = paper.getBoundingClientRect();
  return [(event.clientX - box.left) * paper.width / box.width, (event.clientY - box.top) * paper.height / box.height];
};
function askDrawing() {
  clearTimeout(pad.asking);
  pad.asking = null;
  return question(drawing(), { draft: true });
}

function drawn() {
  clearTimeout(pad.asking);
  pad.asking = setTimeout(guarded(askDrawing), 120);
  $("teach-button").disabled = false;
}

function begin(point) {
  if (pad.fresh) { pad.strokes = []; pad.fresh = false; }
  pad.strokes.push([point]);
  pad.down = true;
}

paper.addEventListener("pointerdown", (event) => {
  if (event.button) return;
  paper.setPointerCapture(event.pointerId);
  pad.keyboard = false;
  begin(at(event));
  render();
});
paper.addEventListener("pointermove", (event) => {
  if (!pad.down || pad.keyboard) return;
  for (const each of event.getCoalescedEvents?.() ?? [event]) pad.strokes.at(-1).push(at(each));
  render();
});
for (const kind of ["pointerup", "pointercancel"]) {
  paper.addEventListener(kind, () => { if (pad.down && !pad.keyboard) { pad.down = false; drawn(); } });
}

paper.addEventListener("keydown", (event) => {
  const step = event.shiftKey ? 40 : 12;
  const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
  if (move) {
    pad.cursor = pad.cursor.map((place, axis) => Math.min(632, Math.max(8, place + move[axis])));
    if (pad.down) { pad.strokes.at(-1).push(pad.cursor); drawn(); }
  } else if (event.key === " ") {
    if (pad.down) { pad.down = false; drawn(); } else begin(pad.cursor);
  } else if (event.key === "Enter") { $("label").focus(); } else return;
  pad.keyboard = true;
  event.preventDefault();
  render();
});

function clearPaper() {
  // What was asked and not taught may be worth teaching later.
  if (current?.answer && !pad.fresh && pad.strokes.length) {
    post("/api/ask", { example: current.value }).then(refreshUnsure, () => {});
  }
  clearTimeout(pad.asking);
  Object.assign(pad, { strokes: [], down: false, fresh: false, asking: null });
  render();
  return question(null);
}

$("clear").onclick = guarded(clearPaper);
$("stroke-back").onclick = guarded(() => {
  pad.strokes.pop();
  pad.fresh = pad.down = false;
  render();
  return askDrawing();
});
document.addEventListener("keydown", guarded(async (event) => {
  if (memory?.kind !== "drawing" || document.querySelector("dialog[open]") || event.target.matches("input")) return;
  if (event.key === "Escape") await clearPaper();
  if (event.key === "z" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); $("stroke-back").click(); }
}));

// ---- text ----

const questions = () => $("question").value.split("\n").map((line) => line.trim()).filter(Boolean).slice(0, limits.batch);

async function askText() {
  const examples = questions().map((value) => ({ value, image: null }));
  $("answers").hidden = true;
  if (examples.length > 1) return askSeveral(examples);
  several = [];
  return question(examples[0] ?? null);
}

$("text").addEventListener("submit", guarded((event) => { event.preventDefault(); return askText(); }));
$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); $("text").requestSubmit(); }
});
$("question").addEventListener("input", () => {
  const lines = questions();
  current = null;
  several = lines.length > 1 ? lines.map((value) => ({ value, image: null })) : [];
  allowTeaching();
  $("teach-button").disabled = !lines.length;
});

// ---- pictures ----

// A picture is made small here already: what is sent is what is kept.
async function shrink(source) {
  const width = source.videoWidth || source.width, height = source.videoHeight || source.height;
  const scale = Math.min(1, 512 / Math.min(width, height));
  const canvas = make("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
  canvas.getContext("2d").drawImage(source, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.92);
}

async function showPicture(address) {
  several = [];
  $("answers").hidden = true;
  $("photo").src = address;
  $("photo").hidden = false;
  $("drop-text").hidden = true;
  await question({ value: address, image: address });
}

async function takeFiles(files) {
  stopCamera();
  const pictures = [...files].filter((file) => file.type.startsWith("image/"));
  if (!pictures.length) throw new Error("These are no pictures; expected PNG, JPEG, WebP or GIF.");
  const examples = await Promise.all(pictures.slice(0, PICTURES).map(async (file) => {
    const bitmap = await createImageBitmap(file).catch(() => { throw new Error(`${file.name} cannot be read as a picture.`); });
    const address = await shrink(bitmap);
    return { value: address, image: address, name: file.name };
  }));
  if (pictures.length > PICTURES) toast(`Took the first ${PICTURES} of ${pictures.length} pictures.`);
  await showPicture(examples[0].image);
  if (examples.length > 1) await askSeveral(examples);
}

let stream = null;
function stopCamera() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  $("video").hidden = $("shoot").hidden = true;
  $("camera").textContent = "◉ Use the camera";
}

$("camera").onclick = guarded(async () => {
  if (stream) { stopCamera(); $("drop-text").hidden = !$("photo").hidden; return; }
  if (!navigator.mediaDevices) throw new Error("A browser gives the camera only to this machine's own pages or over https.");
  stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } })
    .catch(() => { throw new Error("There is no camera, or it was not allowed."); });
  $("video").srcObject = stream;
  $("video").hidden = $("shoot").hidden = false;
  $("photo").hidden = $("drop-text").hidden = true;
  $("camera").textContent = "Stop the camera";
});
$("shoot").onclick = guarded(async () => { const taken = await shrink($("video")); stopCamera(); await showPicture(taken); });
$("file").onchange = guarded(async () => { await takeFiles($("file").files); $("file").value = ""; });
$("drop").addEventListener("click", (event) => { if (stream) event.preventDefault(); });
$("drop").addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); $("file").click(); } });
document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
document.addEventListener("dragleave", () => $("drop").classList.remove("over"));
document.addEventListener("drop", guarded(async (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  if (memory.kind === "picture") await takeFiles(event.dataTransfer.files);
}));
document.addEventListener("paste", guarded(async (event) => {
  if (memory?.kind === "picture" && event.clipboardData.files.length) await takeFiles(event.clipboardData.files);
}));

// ---- what it knows ----

async function refresh() {
  await Promise.all([refreshClasses(), refreshHistory(), refreshUnsure()]);
}

async function refreshClasses() {
  const mine = memory, told = await get("/api/classes");
  if (mine !== memory) return;
  classes = told.classes;
  $("known-classes").textContent = classes.length ? plural(classes.length, "class", "classes") : "nothing yet";
  const room = told.grows ? `in ${plural(told.slots, "slot")}; it grows as needed` : `in ${told.slots} of ${plural(told.capacity, "slot")}`;
  $("size").textContent = `${plural(told.examples, "example")} ${room}`;
  $("full").value = told.capacity ? told.slots / told.capacity : 0;
  $("full").hidden = told.grows || !told.slots;
  $("export").disabled = !told.examples;
  $("known").replaceChildren(...classes.map(({ label }) => make("option", { value: String(label) })));
  $("filter").hidden = classes.length < 9;
  showClasses();
  if (!current) showStart();
}

function showClasses() {
  const wanted = $("filter").value.toLowerCase();
  const shown = classes.filter(({ label }) => String(label).toLowerCase().includes(wanted)).reverse();
  $("classes").replaceChildren(...shown.slice(0, 200).map((each) => {
    const open = button("", () => showExamples(each), { className: "open", title: "Show its examples" });
    if (memory.kind !== "text") {
      open.append(make("span", { className: "thumbs" }, ...each.newest.slice(0, 3).map((id) => image(id, ""))));
    }
    open.append(make("span", { className: "grow" }, String(each.label),
      make("small", { textContent: plural(each.count, "example") })));
    return make("li", {}, open, make("span", { className: "tools" },
      button("✎", () => rename(each), { className: "icon", title: "Rename or merge", ariaLabel: `Rename ${each.label}` }),
      button("✕", () => forget(each), { className: "icon danger", title: "Forget for good", ariaLabel: `Forget ${each.label}` })));
  }));
}
$("filter").oninput = showClasses;

async function rename({ label, count }) {
  const text = await ask({ title: `Rename “${label}”`, text: "To merge it into another class, enter the name of that class.", input: String(label), ok: "Rename" });
  if (!text || text === String(label)) return;
  const to = labelOf(text), other = classes.find((each) => each.label === to);
  if (other && !await ask({ title: `Merge “${label}” into “${to}”?`, text: `${plural(count, "example")} will be taught as “${to}”.`, ok: "Merge" })) return;
  const { entry } = await post("/api/rename", { label, to });
  toast(other ? `Merged into “${to}”.` : `Renamed to “${to}”.`, () => undo(entry));
  await changed();
}

async function forget({ label, count }) {
  if (!await ask({ title: `Forget “${label}” for good?`, text: `${plural(count, "example")} will be gone, in memory and on the disk. This cannot be undone.`, ok: "Forget" })) return;
  const { forgotten } = await post("/api/forget", { label, reason: "asked for on the page" });
  toast(`Forgot ${plural(forgotten, "example")}.`);
  await changed();
}

const changed = () => Promise.all([
  refresh(), current ? question(current, { draft: true }) : null, several.length ? listSeveral() : null]);

let listed = null;
async function showExamples({ label }) {
  listed = { label, before: null };
  $("examples-title").textContent = String(label);
  $("examples-list").className = memory.kind === "text" ? "examples" : "examples images";
  $("examples-list").replaceChildren();
  if (!$("examples").open) $("examples").showModal();
  await moreExamples();
}

async function moreExamples() {
  const query = { label: JSON.stringify(listed.label), count: 24, ...(listed.before ? { before: listed.before } : {}) };
  const { examples } = await get("/api/examples", query);
  listed.before = examples.at(-1)?.id;
  $("examples-more").hidden = examples.length < 24;
  $("examples-list").append(...examples.map((taught) => make("li", {},
    memory.kind === "text" ? null : image(taught.id, `${taught.label}, taught ${ago(taught.when)}`),
    make("div", { className: "grow" }, taught.example ?? "", make("small", { textContent: ago(taught.when) + (taught.who ? ` by ${taught.who}` : "") })),
    make("div", { className: "row" },
      button("Move", async () => {
        const to = await ask({ title: "What is it?", input: String(taught.label), ok: "Move" });
        if (!to || to === String(taught.label)) return;
        const { entry } = await post("/api/relabel", { ids: [taught.id], label: labelOf(to) });
        $("examples").close();
        toast(`Moved to “${to}”.`, () => undo(entry));
        await changed();
      }, { className: "small" }),
      button("Forget", async () => {
        if (!await ask({ title: "Forget this example for good?", text: "This cannot be undone.", ok: "Forget" })) return;
        await post("/api/forget", { ids: [taught.id], reason: "asked for on the page" });
        $("examples").close();
        toast("Forgotten.");
        await changed();
      }, { className: "small danger" })))));
}
$("examples-more").onclick = guarded(moreExamples);
$("examples-close").onclick = () => $("examples").close();

$("export").onclick = guarded(async () => {
  const file = await (await request("/api/export")).blob();
  const link = make("a", { href: URL.createObjectURL(file), download: `${memory.name}.jsonl` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
});

// A file of JSON lines with example and label, as the export writes it, is taught in as few requests as may be.
async function importFile(file) {
  const rows = (await file.text()).split("\n").map((line) => line.trim()).filter(Boolean).map((line, i) => {
    let row = null;
    try { row = JSON.parse(line); } catch { /* told below */ }
    if (row?.example == null || row.label == null) throw new Error(`Line ${i + 1} of ${file.name} is not JSON with an example and a label; nothing was imported.`);
    return row;
  });
  let batch = [], size = 0, taught = 0, entry;
  const send = async () => {
    const [examples, labels] = [batch.map((row) => row.example), batch.map((row) => row.label)];
    ({ entry } = await post("/api/teach", { examples, labels, reason: `imported from ${file.name}`.slice(0, 1000) }));
    [taught, batch, size] = [taught + examples.length, [], 0];
  };
  try {
    for (const row of rows) {
      const bytes = 4 * String(row.example).length + 1000; // at most, with its label
      if (batch.length === limits.batch || (batch.length && size + bytes > limits.body_bytes)) await send();
      batch.push(row);
      size += bytes;
    }
    const parts = taught > 0;
    if (batch.length) await send();
    toast(`Imported ${plural(taught, "example")}.`, taught && !parts ? () => undo(entry) : null);
  } catch (error) {
    throw new Error(taught ? `${error.message} Before that, ${plural(taught, "example")} were imported.` : error.message);
  } finally { await changed(); }
}
$("import").onclick = () => $("import-file").click();
$("import-file").onchange = guarded(async () => {
  const [file] = $("import-file").files;
  $("import-file").value = "";
  if (file) await importFile(file);
});

// ---- most unsure, and history ----

async function refreshUnsure() {
  const mine = memory, { unsure } = await get("/api/unsure");
  if (mine !== memory) return;
  $("unsure-none").hidden = unsure.length > 0;
  $("unsure").replaceChildren(...unsure.map((each) => {
    const text = memory.kind === "text";
    const type = memory.kind === "drawing" ? "png" : "jpeg", address = text ? null : `data:image/${type};base64,${each.example}`;
    const guess = each.label === null ? "I don't know" : each.known ? `Perhaps ${each.label}` : `I don't know. Nearest: ${each.label}`;
    const name = text ? each.example : guess;
    return make("li", {}, text ? null : make("img", { src: address, alt: `An open ${KINDS[memory.kind].name}` }),
      make("div", { className: "grow" }, name, text ? make("small", { textContent: guess }) : null),
      button("Teach", async () => {
        const label = await ask({ title: "What is it?", text: text ? each.example : "", input: each.known ? String(each.label) : "", ok: "Teach" });
        if (label) await teach(label, { value: text ? each.example : address, image: address });
      }, { className: "small", ariaLabel: `Teach what ${text ? each.example : "this"} is` }));
  }));
}

const DONE = {
  create: () => "Created the memory", settings: () => "Changed the settings", fit: () => "Fitted the reader",
  teach: (n) => `Taught ${n}`, import: (n) => `Imported ${n}`, merge: (n) => `Merged in ${n}`, relabel: (n) => `Relabelled ${n}`,
  forget: (n) => `Forgot ${n}`, undo: (n) => `Took back ${n}`, expire: (n) => `Let ${n} expire`,
};

async function refreshHistory() {
  const mine = memory, told = await get("/api/history", { count: 40 });
  if (mine !== memory) return;
  $("history").replaceChildren(...told.history.map((line) => {
    const names = line.labels?.length ? `: ${line.labels.slice(0, 5).join(", ")}${line.labels.length > 5 ? ", …" : ""}` : "";
    const done = (DONE[line.kind]?.(plural(line.count, "example")) ?? line.kind) + names;
    const note = [ago(line.when), line.who && `by ${line.who}`, line.reason, line.undone && "undone"].filter(Boolean).join(", ");
    const small = make("small", { textContent: note, title: new Date(line.when).toLocaleString() });
    return make("li", { className: line.undone ? "undone" : "" },
      make("div", { className: "grow" }, done, small),
      line.undoable && !memory.readonly ? button("Undo", () => undo(line.id), { className: "small", ariaLabel: `Undo: ${done}` }) : null);
  }));
}

// ---- live: other pages and programs teach too ----

async function listen() {
  for (;;) {
    try {
      const { body } = await request("/api/events");
      $("live").textContent = "live";
      $("live").classList.add("on");
      await refresh();
      const reader = body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        const changes = events.filter((each) => each.startsWith("event: change")).map((each) => JSON.parse(each.split("data: ")[1]));
        if (changes.some((each) => each.memory === memory.name)) await refresh();
      }
    } catch { /* it comes back below */ }
    $("live").textContent = "not connected";
    $("live").classList.remove("on");
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

// ---- tabs, theme, start ----

async function choose(chosen) {
  stopCamera();
  memory = chosen;
  localStorage.setItem("memory", memory.name);
  const kind = KINDS[memory.kind];
  for (const tab of $("tabs").children) {
    const selected = tab.dataset.memory === memory.name;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    if (selected) $("work").setAttribute("aria-labelledby", tab.id);
  }
  for (const input of ["drawing", "text", "picture"]) $(input).hidden = input !== memory.kind;
  $("title").textContent = kind.title;
  $("hint").textContent = kind.hint;
  $("answers").hidden = true;
  [classes, several] = [[], []];
  clearTimeout(pad.asking);
  Object.assign(pad, { strokes: [], fresh: false, asking: null });
  render();
  $("photo").hidden = true;
  $("drop-text").hidden = false;
  $("label").value = $("question").value = $("filter").value = "";
  $("teach").hidden = $("import").hidden = memory.readonly;
  await question(null);
  await refresh();
}

function showTabs() {
  const single = memories.length === 1;
  $("tabs").replaceChildren(...memories.map((each, i) => {
    const tab = button(single ? each.name : KINDS[each.kind].tab, () => choose(each), { role: "tab", id: `tab-${i}` });
    tab.setAttribute("aria-controls", "work");
    tab.dataset.memory = each.name;
    return tab;
  }));
  $("tabs").onkeydown = (event) => {
    const tabs = [...$("tabs").children], step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  };
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const applyTheme = () => { document.documentElement.dataset.theme = localStorage.getItem("theme") ?? (dark.matches ? "dark" : "light"); };
$("theme").onclick = () => {
  localStorage.setItem("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  applyTheme();
};
dark.addEventListener("change", applyTheme);
applyTheme();

guarded(async () => {
  ({ memories, limits } = await get("/api/memories"));
  showTabs();
  await choose(memories.find((each) => each.name === localStorage.getItem("memory")) ?? memories[0]);
  document.body.dataset.ready = "true";
  listen();
})();
