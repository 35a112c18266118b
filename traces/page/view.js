"use strict";
// Draws the run of model.js and listens to the reader.  Texts of the run are set as text, never as HTML.
(async () => {

const $ = id => document.getElementById(id);
const PORTS = ["W", "E", "N", "S", "R"], NEAR = 6, FOUND = 100, LISTED = 300;
const QUEUES = ["router, from W", "router, from E", "router, from N", "router, from S", "router, from the CE",
  "input queue of the CE"];
const HELP = "Click a PE for its tasks, operations, queues and waits. Wheel or pinch zooms, dragging moves; space "
  + "plays, ← and → go a cycle, with Shift ten, Home and End go to the ends, ↑ and ↓ change the speed, Esc closes.";
const SPEEDS = [1, 2, 4, 8, 16, 30, 60, 120, 250, 500, 1000, 4000, 16000, 64000, 250000, 1000000];
const WINDOWS = [1, 4, 16, 64, 256, 1024, 4096, 0];
const LINKS_FROM = 9, TEXT_FROM = 54, TILES_BELOW = 4;  // pixels per PE

function make(tag, content, options) {
  const node = document.createElement(tag);
  for (const key in options || {}) if (key in node) node[key] = options[key]; else node.setAttribute(key, options[key]);
  for (const part of [].concat(content === undefined || content === null ? [] : content)) {
    node.append(part instanceof Node ? part : String(part));
  }
  return node;
}
const whole = number => Number(number).toLocaleString("en");
const hex = number => "0x" + number.toString(16).padStart(8, "0");
const asFloat = number => new Float32Array(new Uint32Array([number]).buffer)[0];

$("about").textContent = "reading…";
let run;
try {
  run = await Model.read(JSON.parse($("data").textContent));
} catch (error) {
  $("about").textContent = `This page is damaged: ${error.message}`;
  return;
}
const {facts, tables} = run, last = facts.stop - 1, step = facts.window || 1, {windows} = tables;
const now = {cycle: facts.first, part: 0.5, playing: false, speed: 8, window: 16, pe: -1, scale: 1, x: 0, y: 0,
  shade: "state", way: null, results: null};
let look = {}, waiting = false;

// ---- what is said of the run -------------------------------------------------------------------------------

function say() {
  const rows = windows ? `windows of ${whole(step)} cycles`
    : `${whole(Object.values(tables).reduce((sum, table) => sum + table.pe.length, 0))} events and spans`;
  const [x, y, width, height] = facts.region, whole_ = width === facts.fabric[0] && height === facts.fabric[1];
  $("title").textContent = facts.job || facts.file;
  const parts = [facts.file, `${whole(width)} × ${whole(height)} PEs`,
    whole_ ? "" : `from (${x}, ${y}) of ${whole(facts.fabric[0])} × ${whole(facts.fabric[1])}`,
    `cycles ${whole(facts.first)} to ${whole(last)}`, rows, facts.preset,
    facts.part && `only ${facts.part}`];
  $("about").replaceChildren(parts.filter(part => part).join(" · "));
  if (facts.status !== "completed") $("about").append(" · ", make("b", facts.status, {className: "bad"}));
  for (const gap of facts.gaps) $("about").append(make("div", `A gap: ${gap}.`, {className: "bad"}));
  if (facts.spent.length) $("about").append(make("div", facts.spent.join(" · ")));
  if (facts.missing.length) $("about").append(make("div", `Not in this page: ${facts.missing.join("; ")}.`));
}

function usedColors() {
  const seen = new Set(tables.moves ? tables.moves.color : []);
  return [...seen].sort((a, b) => a - b);
}
const colors = usedColors();
const colorOf = color => `hsl(${(color * 137.5 + 20) % 360} 72% ${look.dark ? 62 : 42}%)`;

function legend() {
  const key = (colour, text) => [make("span", "", {className: "key", style: `background: ${colour}`}), ` ${text} `];
  const box = $("legend");
  box.replaceChildren();
  if (now.shade === "state" && windows) {
    const shade = ([, text, colour, group]) => key(group === "idle" ? look.idle : colour, text);
    box.append(make("div", facts.uses.flatMap(shade)));
  } else if (now.shade === "state") {
    const line = make("div", key(look.idle, "nothing"));
    if (run.lasting.tasks || run.lasting.operations) line.append(...key(facts.shades.calculates, "calculates"));
    for (const [reason, , colour] of tables.waits ? facts.waits : []) line.append(...key(colour, `waits: ${reason}`));
    box.append(line);
    const shown = facts.tasks.filter(([, colour]) => colour !== facts.shades.others);
    if (shown.length) box.append(make("div", ["tasks: ", ...shown.flatMap(([name, colour]) => key(colour, name))]));
  }
  if (!colors.length) return;
  const line = make("div", "colors: ");
  for (const color of colors) {
    const tick = make("input", null, {type: "checkbox", checked: !run.hidden.has(color)});
    tick.addEventListener("change", () => {
      const hidden = new Set(run.hidden);
      if (tick.checked) hidden.delete(color); else hidden.add(color);
      run.hide(hidden);
      changed();
    });
    line.append(make("label", [tick, ...key(colorOf(color), color)]));
  }
  const all = make("button", "all or none", {type: "button"});
  all.addEventListener("click", () => { run.hide(run.hidden.size ? [] : colors); legend(); changed(); });
  line.append(all);
  box.append(line);
}

// ---- pictures ----------------------------------------------------------------------------------------------

function theme() {
  const style = getComputedStyle(document.documentElement), dark = matchMedia("(prefers-color-scheme: dark)").matches;
  look = {dark};
  for (const name of ["ink", "paper", "soft", "line", "idle", "link", "hot", "mark"]) {
    look[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

function sized(canvas) {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  return [pen, box.width, box.height];
}

const rgb = text => {
  const value = parseInt(text.slice(1), 16);
  return [value >> 16, value >> 8 & 255, value & 255];
};
function mixed(parts) {  // [[colour, share], ...]
  const found = [0, 0, 0];
  for (const [colour, share] of parts) colour.forEach((value, k) => { found[k] += value * share; });
  return found;
}
const css = ([r, g, b]) => `rgb(${Math.round(r)} ${Math.round(g)} ${Math.round(b)})`;
const ramp = share => mixed([[rgb(look.idle), 1 - share], [rgb(look.hot), share]]);

function span() {
  const first = now.window ? Math.max(facts.first, now.cycle + 1 - now.window) : facts.first;
  return [first, Math.max(1, now.cycle + 1 - first)];
}

function shareOf(loads, pe, cycles) {
  let most = 0;
  for (let k = pe * 5; k < pe * 5 + 5; k++) if (loads[k] > most) most = loads[k];
  return Math.min(1, most / cycles);
}

function colourOf(pe) {
  if (windows) return look.idle;
  const wait = run.of("waits", pe, now.cycle);
  if (wait >= 0) return facts.waits[tables.waits.what[wait]][2];
  const task = run.of("tasks", pe, now.cycle);
  if (task >= 0) return now.scale >= LINKS_FROM ? facts.tasks[tables.tasks.what[task]][1] : facts.shades.calculates;
  return run.lasting.operations && run.lasting.operations.counts[pe] ? facts.shades.calculates : look.idle;
}

// Draw the PEs as tiles of so many that a tile has some pixels: which share of them calculates, waits, moves wavelets.
function tiles(pen, width, height, loads, cycles) {
  const {scale, x, y} = now;
  let size = 1;
  while (size * scale < 2) size *= 2;
  const left = Math.max(0, Math.floor(x / size)), top = Math.max(0, Math.floor(y / size));
  const right = Math.min(Math.ceil(run.width / size), Math.ceil((x + width / scale) / size));
  const bottom = Math.min(Math.ceil(run.height / size), Math.ceil((y + height / scale) / size));
  if (right <= left || bottom <= top) return;
  const image = new ImageData(right - left, bottom - top), idle = rgb(look.idle), wait = rgb(facts.waits[1][2]);
  const works = rgb(facts.shades.calculates), {tasks, operations, waits} = run.lasting;
  const window = windows && run.windowOf(now.cycle);
  for (let row = top, at = 0; row < bottom; row++) {
    for (let column = left; column < right; column++, at += 4) {
      const stopX = Math.min(run.width, (column + 1) * size), stopY = Math.min(run.height, (row + 1) * size);
      let count = 0, waiting = 0, working = 0, load = 0;
      for (let v = row * size; v < stopY; v++) {
        for (let u = column * size, pe = v * run.width + u; u < stopX; u++, pe++, count++) {
          if (loads) load += shareOf(loads, pe, cycles);
          else if (window) {
            working += window.works[pe] / cycles;
            waiting += window.waits[pe] / cycles;
          }
          else if (waits && waits.counts[pe]) waiting++;
          else if ((tasks && tasks.counts[pe]) || (operations && operations.counts[pe])) working++;
        }
      }
      const colour = loads ? ramp(load / count)
        : mixed([[idle, 1 - (waiting + working) / count], [works, working / count], [wait, waiting / count]]);
      image.data.set([...colour, 255], at);
    }
  }
  const still = new OffscreenCanvas(image.width, image.height);
  still.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(still, (left * size - x) * scale, (top * size - y) * scale, image.width * size * scale,
    image.height * size * scale);
  pen.clearRect((run.width - x) * scale, -1, width, height + 2);  // the last tiles may reach over the edge
  pen.clearRect(-1, (run.height - y) * scale, width + 2, height);
}

function centre(pe) {
  return [(pe % run.width + 0.5 - now.x) * now.scale, (Math.floor(pe / run.width) + 0.5 - now.y) * now.scale];
}

function cells(pen, range, loads, cycles) {
  const {scale} = now, size = scale >= LINKS_FROM ? scale * 0.62 : scale * 0.86, side = (scale - size) / 2;
  for (let v = range[1]; v < range[3]; v++) {
    for (let u = range[0]; u < range[2]; u++) {
      const pe = v * run.width + u;
      pen.fillStyle = now.shade === "load" && loads ? css(ramp(shareOf(loads, pe, cycles))) : colourOf(pe);
      const x = (u - now.x) * scale + side, y = (v - now.y) * scale + side;
      pen.fillRect(x, y, size, size);
      if (windows && now.shade === "state") account(pen, pe, cycles, x, y, size);
    }
  }
}

// Draw what the cycles of a PE went to in a window, from below.
function account(pen, pe, cycles, x, y, size) {
  const [start] = run.windowAt(now.cycle);
  let low = y + size;
  for (const [use, , colour, group] of facts.uses) {
    if (group === "idle") continue;
    const high = windows[use][start + pe] / cycles * size;
    pen.fillStyle = colour;
    pen.fillRect(x, low - high, size, high);
    low -= high;
  }
}

function drawLinks(pen, range, loads, cycles) {
  const {scale} = now, reach = scale * 0.31, aside = scale * 0.07;
  for (let v = range[1]; v < range[3]; v++) {
    for (let u = range[0]; u < range[2]; u++) {
      const pe = v * run.width + u, [x, y] = centre(pe);
      for (let out = 0; out < 4; out++) {
        const load = loads[pe * 5 + out];
        if (!load) continue;
        const [dx, dy] = Model.STEPS[out], share = Math.min(1, load / cycles);
        pen.strokeStyle = css(mixed([[rgb(look.link), 1 - share], [rgb(look.hot), share]]));
        pen.lineWidth = Math.max(1, scale * 0.02 + scale * 0.06 * share);
        pen.beginPath();
        pen.moveTo(x + dx * reach + dy * aside, y + dy * reach - dx * aside);
        pen.lineTo(x + dx * (scale - reach) + dy * aside, y + dy * (scale - reach) - dx * aside);
        pen.stroke();
      }
    }
  }
}

function drawMoves(pen, range) {
  const moves = tables.moves, [from, to] = run.range(now.cycle, now.cycle + 1), {scale} = now;
  const size = Math.max(2.5, Math.min(9, scale * 0.09));
  for (let k = from; k < to; k++) {
    const row = run.order[k];
    if (moves.kind[row] !== run.kind.depart || !run.shown(row)) continue;
    const pe = moves.pe[row], u = pe % run.width, v = Math.floor(pe / run.width);
    if (u < range[0] || u >= range[2] || v < range[1] || v >= range[3]) continue;
    const [x, y] = centre(pe);
    pen.fillStyle = colorOf(moves.color[row]);
    for (let out = 0; out < 5; out++) {
      if (!(moves.aux[row] >> out & 1)) continue;
      const [dx, dy] = out < 4 ? Model.STEPS[out] : [0, 0], far = (0.31 + 0.38 * now.part) * scale;
      const px = x + dx * far + dy * scale * 0.07, py = y + dy * far - dx * scale * 0.07;
      pen.beginPath();
      if (out === 4) { pen.rect(px - size * 0.7, py - size * 0.7 + scale * 0.2, size * 1.4, size * 1.4); }
      else {
        pen.moveTo(px + dx * size, py + dy * size);
        pen.lineTo(px - dx * size + dy * size, py - dy * size + dx * size);
        pen.lineTo(px - dx * size - dy * size, py - dy * size - dx * size);
      }
      pen.fill();
    }
  }
}

function names(pen, range) {
  const {scale} = now, size = Math.min(13, scale * 0.13), room = scale * 0.58;
  pen.font = `${size}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.strokeStyle = look.paper;
  pen.lineWidth = 3;
  pen.lineJoin = "round";
  for (let v = range[1]; v < range[3]; v++) {
    for (let u = range[0]; u < range[2]; u++) {
      const pe = v * run.width + u, [x, y] = centre(pe), lines = [run.place(pe).join(", ")];
      const task = run.of("tasks", pe, now.cycle), wait = run.of("waits", pe, now.cycle);
      if (windows) lines.push(`busy ${percent(windows.busy[run.windowAt(now.cycle)[0] + pe])}`);
      if (task >= 0) lines.push(taskText(task));
      if (wait >= 0) lines.push(`waits: ${facts.waits[tables.waits.what[wait]][0]}`);
      else {
        const row = run.operations(pe, now.cycle).pop();
        if (row !== undefined) lines.push(facts.operations[tables.operations.what[row]][0]);
      }
      const plain = windows || now.shade === "load" || colourOf(pe) === look.idle;
      pen.fillStyle = plain ? look.ink : wait >= 0 ? "#ffffff" : "#1d2528";
      lines.forEach((line, k) => {
        const low = y - scale * 0.16 + k * size * 1.25;
        if (windows) pen.strokeText(line, x, low, room);  // a rim, on whatever colours
        pen.fillText(line, x, low, room);
      });
    }
  }
}

// A number of cycles of the window as a share of it.
function percent(cycles) { return `${(100 * cycles / run.windowAt(now.cycle)[1]).toFixed(0)} %`; }

function drawWay(pen) {
  const size = Math.max(4, now.scale);
  pen.strokeStyle = look.mark;
  pen.lineWidth = Math.max(1.5, size * 0.03);
  const outline = pe => {
    const [x, y] = centre(pe);
    pen.strokeRect(x - size / 2, y - size / 2, size, size);
  };
  if (now.pe >= 0) outline(now.pe);
  if (!now.way) return;
  pen.setLineDash([4, 3]);
  for (const pe of new Set(now.way.map(row => tables.moves.pe[row]))) if (pe !== now.pe) outline(pe);
  pen.setLineDash([]);
}

function fabric() {
  const [pen, width, height] = sized($("fabric")), {scale} = now;
  const [first, cycles] = windows ? run.windowAt(now.cycle) : span();
  const loads = windows ? run.windowOf(now.cycle).loads : tables.moves ? run.loadsOf(first, now.cycle + 1) : null;
  const range = [Math.max(0, Math.floor(now.x)), Math.max(0, Math.floor(now.y)),
    Math.min(run.width, Math.ceil(now.x + width / scale)), Math.min(run.height, Math.ceil(now.y + height / scale))];
  run.seek(now.cycle);
  if (scale < TILES_BELOW) tiles(pen, width, height, now.shade === "load" ? loads : null, cycles);
  else cells(pen, range, loads, cycles);
  if (scale >= LINKS_FROM && loads) {
    drawLinks(pen, range, loads, cycles);
    if (tables.moves) drawMoves(pen, range);
  }
  if (scale >= TEXT_FROM) names(pen, range);
  drawWay(pen);
}

// The whole run in one strip: phases, then the share of PEs in a task and waiting, and the wavelets that moved.
let strip = null;
function measure(width) {
  if (windows) {
    const parts = Math.max(1, Math.min(Math.floor(width), facts.stop - facts.first));
    const {works, waits, moved} = run.windowAverages(parts);
    strip = {width, parts, colors: run.hidden, work: works.map((value, k) => value + waits[k]), waits, moved};
    return;
  }
  const parts = Math.max(1, Math.min(Math.floor(width), facts.stop - facts.first)), moved = new Float64Array(parts);
  const part = (facts.stop - facts.first) / parts;
  const of = name => tables[name] && Model.averages(tables[name], facts.first, facts.stop, parts);
  if (tables.moves) {
    tables.moves.cycle.forEach((cycle, row) => {
      if (tables.moves.kind[row] === run.kind.depart && run.shown(row)) {
        moved[Math.min(parts - 1, Math.floor((cycle - facts.first) / part))]++;
      }
    });
  }
  strip = {width, parts, colors: run.hidden, work: of("tasks") || of("operations"), waits: of("waits"), moved};
}

function time() {
  const [pen, width, height] = sized($("time")), low = height - 4, high = facts.marks.length ? 20 : 4;
  if (!strip || strip.width !== width || strip.colors !== run.hidden) measure(width);
  const curve = (values, most, colour, filled) => {
    if (!values || !most) return;
    pen.beginPath();
    pen.moveTo(0, low);
    for (let k = 0; k < strip.parts; k++) {
      const y = low - (low - high) * Math.min(1, values[k] / most);
      pen.lineTo(k * width / strip.parts, y);
      pen.lineTo((k + 1) * width / strip.parts, y);
    }
    pen.fillStyle = pen.strokeStyle = colour;
    pen.lineTo(width, low);
    if (filled) pen.fill(); else pen.stroke();
  };
  let most = 0;
  for (const values of [strip.work, strip.waits]) for (const value of values || []) if (value > most) most = value;
  curve(strip.work, most, facts.shades.calculates, true);
  curve(strip.waits, most, facts.waits[1][2], true);
  pen.lineWidth = 1;
  curve(strip.moved, strip.moved.reduce((a, b) => Math.max(a, b), 0), look.ink, false);
  const at = cycle => (cycle - facts.first) / (facts.stop - facts.first) * width;
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "left";
  const tracks = [...new Set(facts.marks.map(mark => mark[2]))];
  for (const [begin, end, track, label] of facts.marks) {
    const k = tracks.indexOf(track), x = Math.max(0, at(begin)), room = Math.min(width, at(end)) - x;
    if (k > 2) continue;
    pen.fillStyle = look.line;
    pen.fillRect(x, 1 + k * 6, Math.max(1, room - 1), 5);
    if (tracks.length === 1 && room > 40) { pen.fillStyle = look.ink; pen.fillText(label, x + 2, 16, room - 4); }
  }
  const x = at(now.cycle + now.part);
  pen.fillStyle = look.hot;
  pen.fillRect(x - 1, 0, 2, height);
  const slider = $("time");
  slider.setAttribute("aria-valuemin", facts.first);
  slider.setAttribute("aria-valuemax", last);
  slider.setAttribute("aria-valuenow", now.cycle);
}

// ---- what is said of a PE ----------------------------------------------------------------------------------

function line(cells, options) {
  const row = make("tr", cells.map(([text, right]) => make("td", text, {className: right ? "n" : ""})));
  if (options && options.go !== undefined) {
    row.className = options.now ? "go now" : "go";
    row.addEventListener("click", options.go);
  }
  return row;
}
const to = (cycle, pe, row) => () => {
  if (pe !== undefined && pe >= 0) now.pe = pe;
  if (row !== undefined) now.way = run.way(row);
  seek(cycle);
  if (pe !== undefined) show(pe);
  changed();
};

function lengthOf(rows, row) {
  return rows.length[row] === Model.ENDLESS ? "runs on" : whole(rows.length[row]);
}
function operationText(row) {
  const rows = tables.operations, [name, where] = facts.operations[rows.what[row]];
  const done = rows.done[row] ? ` · ${whole(rows.done[row])} elements` : "";
  return `${name}${where && ` ${where}`} · ${facts.threads[rows.lane[row]]}${done}`;
}
function taskText(row) { return facts.tasks[tables.tasks.what[row]][0]; }
function waitText(row) {
  const rows = tables.waits, [reason, text] = facts.waits[rows.what[row]];
  return rows.color[row] < 255 ? `${text}: color ${rows.color[row]}, queue ${rows.queue[row]}` : text || reason;
}
function moveText(row) {
  const moves = tables.moves, aux = moves.aux[row], name = facts.kinds[moves.kind[row]];
  const away = aux >> Model.HOST & 1 ? "the host" : "nowhere";
  const outputs = PORTS.filter((_, k) => aux >> k & 1).join(" ") || away;
  const what = {inject: `sent, output queue ${aux}`, take: `taken from input queue ${aux}`,
    enter: `enters at ${PORTS[aux]}`, depart: `${PORTS[moves.flags[row] >> 1 & 7]} to ${outputs}`}[name];
  const payload = run.payload(row), float = asFloat(payload), size = Math.abs(float);
  const about = size > 1e-20 && size < 1e20 ? ` = ${float.toPrecision(6)}` : "";
  return `color ${moves.color[row]} ${what}, ${hex(payload)}${about}${moves.flags[row] & 1 ? ", control" : ""}`;
}
function hostText(access, count) {
  const name = facts.host[access], unit = {launch: "PEs", write: "words", read: "words"}[name] || "wavelets";
  return `the host: ${name}, ${whole(count)} ${unit}`;
}
function noteText(row) {
  const notes = tables.notes, name = facts.kinds[notes.kind[row]], {aux, data, color} = notes;
  const of = color[row] < 255 ? ` of color ${color[row]}` : "";
  return {activate: `task ${facts.activated[aux[row]]} activated`, conflict: `${data[row]} cycles lost to bank conflicts`,
    switch: `switch${of} to position ${aux[row]}`, route: `route${of} changed`,
    teardown: `teardown${of} ${aux[row] ? "begins" : "ends"}`, host: hostText(aux[row], data[row])}[name];
}

// Rows of a table of one PE around the cycle.
function near(name, title, text) {
  const rows = tables[name], count = run.starts[name][now.pe + 1] - run.starts[name][now.pe];
  const begin = rows.begin || rows.cycle, body = make("table");
  if (!count) return [];
  for (const row of run.near(name, now.pe, now.cycle, 2 * NEAR, row => name !== "moves" || run.shown(row))) {
    const lasts = rows.begin ? begin[row] <= now.cycle && Model.lasts(rows, row, now.cycle) : begin[row] === now.cycle;
    const go = to(begin[row], undefined, name === "moves" ? row : undefined);
    const length = rows.begin ? [[lengthOf(rows, row), true]] : [];
    body.append(line([[whole(begin[row]), true], ...length, [text(row)]], {now: lasts, go}));
  }
  return [make("h3", `${title}, ${whole(count)}`), body];
}

function queuesOf() {
  if (facts.queues) return [make("h3", "queues"), make("div", `Not known: ${facts.queues}.`, {className: "soft"})];
  const found = [...run.queues(now.pe, now.cycle)].filter(([key]) => !run.hidden.has(key >> 3));
  const body = make("table");
  for (const [key, depth] of found) {
    body.append(line([[`color ${key >> 3}`], [QUEUES[key & 7]], [whole(depth), true]]));
  }
  const empty = make("div", "all empty", {className: "soft"});
  return [make("h3", "queues: wavelets that wait"), found.length ? body : empty];
}

function pePanel() {
  const close = make("button", "×", {ariaLabel: "close", title: "close (Esc)"});
  close.addEventListener("click", leave);
  const title = make("h2", `PE (${run.place(now.pe).join(", ")}) in cycle ${whole(now.cycle)}`);
  const parts = [make("div", [title, close], {className: "row"})];
  if (windows) return [...parts, ...windowPanel()];
  const state = make("table"), task = run.of("tasks", now.pe, now.cycle), wait = run.of("waits", now.pe, now.cycle);
  if (tables.tasks) state.append(line([["task"], [task < 0 ? "none" : taskText(task)]]));
  if (wait >= 0) state.append(line([["waits"], [waitText(wait)]]));
  for (const row of run.operations(now.pe, now.cycle)) state.append(line([["operation"], [operationText(row)]]));
  parts.push(state);
  if (tables.moves) parts.push(...queuesOf());
  const texts = {tasks: ["tasks: begin, cycles", taskText],
    operations: ["vector operations: begin, cycles", operationText], waits: ["waits: begin, cycles", waitText],
    moves: ["wavelets", moveText], notes: ["other events", noteText]};
  for (const name in texts) if (tables[name]) parts.push(...near(name, ...texts[name]));
  return parts;
}

function windowPanel() {
  const body = make("table"), [start, cycles] = run.windowAt(now.cycle), count = windows.busy.length / run.count;
  const total = values => {
    let sum = 0;
    for (let k = 0; k < count; k++) sum += values[k * run.count + now.pe];
    return sum;
  };
  for (const [use, text] of facts.uses) {
    const spent = windows[use][start + now.pe];
    body.append(line([[text], [whole(spent), true], [percent(spent), true], [whole(total(windows[use])), true]]));
  }
  const found = [make("h3", `cycles of the window of ${whole(cycles)}, their share; all cycles`), body];
  if (!windows.W) return found;
  const links = make("table");
  for (const port of PORTS.slice(0, 4)) {
    const left = windows[port];
    links.append(line([[`to ${port}`], [whole(left[start + now.pe]), true], [whole(total(left)), true]]));
  }
  return [...found, make("h3", "wavelets that left in the window; in all"), links];
}

function wayPanel() {
  const body = make("table"), moves = tables.moves, more = now.way.length - LISTED;
  for (const row of now.way.slice(0, LISTED)) {
    body.append(line([[whole(moves.cycle[row]), true], [`(${run.place(moves.pe[row]).join(", ")})`], [moveText(row)]],
      {now: moves.cycle[row] === now.cycle, go: to(moves.cycle[row], moves.pe[row])}));
  }
  const found = [make("h3", `the way of one wavelet, ${whole(now.way.length)} events`), body];
  if (more > 0) found.push(make("div", `and ${whole(more)} more`, {className: "soft"}));
  if (facts.ways) found.push(make("div", `Events may be those of another wavelet: ${facts.ways}.`, {className: "bad"}));
  return found;
}

function phaseLine([begin, end, track, label]) {
  const lasts = begin <= now.cycle && now.cycle < end;
  return line([[whole(begin), true], [end > begin ? whole(end - begin) : "", true], [`${track}: ${label}`]],
    {now: lasts, go: to(begin)});
}

// Phases of the program around the cycle.
function phasePanel() {
  const {marks} = facts, after = marks.findIndex(([begin]) => begin > now.cycle), at = after < 0 ? marks.length : after;
  const first = Math.max(0, Math.min(at - NEAR, marks.length - 2 * NEAR)), body = make("table");
  for (const mark of marks.slice(first, first + 2 * NEAR)) body.append(phaseLine(mark));
  return [make("h3", `phases: begin, cycles, ${whole(marks.length)}`), body];
}

function resultPanel() {
  const {total, found, skipped, words} = now.results, body = make("table");
  for (const [name, row] of found) {
    if (name === "marks") {
      body.append(phaseLine(facts.marks[row]));
      continue;
    }
    const rows = tables[name], cycle = (rows.begin || rows.cycle)[row], pe = rows.pe[row];
    const text = {tasks: taskText, operations: operationText, moves: moveText}[name](row);
    body.append(line([[whole(cycle), true], [`(${run.place(pe).join(", ")})`], [text]],
      {now: false, go: to(cycle, pe, name === "moves" ? row : undefined)}));
  }
  const part = found.length < total ? `, number ${whole(skipped + 1)} to ${whole(skipped + found.length)}` : "";
  return [make("h3", `“${words}”: ${whole(total)} found${part}`), body];
}

function panel() {
  const parts = now.pe >= 0 ? pePanel() : [make("p", HELP, {className: "soft"})];
  if (now.way) parts.push(...wayPanel());
  if (now.pe < 0 && facts.marks.length) parts.push(...phasePanel());
  if (now.results) parts.unshift(...resultPanel());
  $("panel").replaceChildren(...parts);
}

// ---- what the reader does ----------------------------------------------------------------------------------

function draw() {
  waiting = false;
  fabric();
  time();
  const box = $("cycle");
  if (document.activeElement !== box) box.value = now.cycle;
}
function redraw() {
  if (!waiting) { waiting = true; requestAnimationFrame(draw); }
}

let noting = 0;
function note() {  // browsers refuse addresses that change too often
  clearTimeout(noting);
  noting = setTimeout(() => {
    const place = now.pe >= 0 ? run.place(now.pe) : null;
    const text = Model.address({cycle: now.cycle, place, hidden: [...run.hidden].sort((a, b) => a - b)});
    if (text !== location.hash) history.replaceState(null, "", text);
  }, 250);
}

let panelAt = 0;
function changed() {  // anything: while it plays, tables follow a few times a second
  redraw();
  const since = performance.now() - panelAt;
  if (!now.playing || since > 250) { panelAt = performance.now(); panel(); }
  if (!now.playing) note();
}

function seek(cycle) {
  now.cycle = Math.max(facts.first, Math.min(last, Math.round(cycle)));
  now.part = 0.5;
}
function go(cycle) {
  pause();
  if (elsewhere(cycle)) return;
  seek(cycle);
  changed();
}

// Of a run in parts: go to the part that has a cycle, and say so; how fast it plays there, if it does.
function elsewhere(cycle, speed) {
  const {parts} = facts, part = parts ? Model.partOf(parts.edges, cycle) : -1;
  if (part < 0 || part === parts.at) return false;
  const place = now.pe >= 0 ? run.place(now.pe) : null;
  location.assign(part + Model.address({cycle, place, hidden: [...run.hidden].sort((a, b) => a - b), speed}));
  return true;
}

function pause() {
  now.playing = false;
  now.part = 0.5;
  $("play").textContent = "▶";
  $("play").setAttribute("aria-label", "play");
}
function play() {
  if (now.playing) { pause(); changed(); return; }
  if (now.cycle >= last) seek(facts.first);
  now.playing = true;
  $("play").textContent = "❚❚";
  $("play").setAttribute("aria-label", "pause");
  let before = performance.now(), exact = now.cycle;
  const tick = at => {
    if (!now.playing) return;
    if (Math.floor(exact) !== now.cycle) exact = now.cycle;  // somebody went elsewhere
    exact += Math.max(0, at - before) / 1000 * now.speed;
    before = at;
    if (exact >= facts.stop) {
      if (!elsewhere(facts.stop, now.speed)) go(last);
      now.playing = false;
      return;
    }
    const cycle = Math.floor(exact), moved = cycle !== now.cycle;
    now.cycle = cycle;
    now.part = now.speed <= 16 ? exact - cycle : 0.5;
    if (moved) changed(); else redraw();
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

function fit() {
  const box = $("fabric").getBoundingClientRect();
  now.scale = Math.min((box.width - 16) / run.width, (box.height - 16) / run.height, 160);
  now.x = run.width / 2 - box.width / 2 / now.scale;
  now.y = run.height / 2 - box.height / 2 / now.scale;
  now.fitted = true;  // until the reader moves it: a window of another size fits it again
}
function zoom(factor, x, y) {
  const box = $("fabric").getBoundingClientRect(), least = Math.min(box.width / run.width, box.height / run.height) / 2;
  const scale = Math.max(Math.min(least, 160), Math.min(320, now.scale * factor));
  const px = x === undefined ? box.width / 2 : x, py = y === undefined ? box.height / 2 : y;
  now.x += px / now.scale - px / scale;
  now.y += py / now.scale - py / scale;
  now.scale = scale;
  now.fitted = false;
  redraw();
}
function show(pe) {  // bring a PE into sight
  const box = $("fabric").getBoundingClientRect();
  if (now.scale < 24 && run.count > 1) {
    now.scale = 40;
    now.fitted = false;
  }
  const [x, y] = centre(pe);
  if (x < 0 || y < 0 || x > box.width || y > box.height) {
    now.fitted = false;
    now.x = pe % run.width + 0.5 - box.width / 2 / now.scale;
    now.y = Math.floor(pe / run.width) + 0.5 - box.height / 2 / now.scale;
  }
}
function leave() {
  if (now.results) now.results = null; else if (now.way) now.way = null; else now.pe = -1;
  changed();
}

function find(words) {
  const found = run.search(words, now.cycle, FOUND);
  now.results = null;
  if (found.what === "cycle") { go(found.cycle); return; }
  if (found.what === "place") {
    if (found.pe < 0) now.results = {total: 0, found: [], skipped: 0, words};
    else {
      now.pe = found.pe;
      now.way = null;
      show(found.pe);
    }
  } else now.results = {...found, words};
  pause();
  changed();
}

function fromAddress() {
  const asked = Model.fromAddress(location.hash);
  if (asked.cycle !== null && elsewhere(asked.cycle)) return;
  if (asked.cycle !== null) seek(asked.cycle);
  run.hide(asked.hidden.filter(color => colors.includes(color)));
  now.pe = asked.place ? run.at(...asked.place) : -1;
  if (now.pe >= 0) show(now.pe);
  legend();
}

function choices() {
  for (const speed of SPEEDS) $("speed").append(make("option", `${whole(speed)}/s`, {value: speed}));
  for (const cycles of WINDOWS) {
    $("window").append(make("option", cycles ? `${whole(cycles)} cycles` : "the run so far", {value: cycles}));
  }
  now.speed = SPEEDS.find(speed => speed * 40 >= facts.stop - facts.first) || SPEEDS[SPEEDS.length - 1];
  $("speed").value = now.speed;
  $("window").value = now.window;
  $("speed").addEventListener("change", event => { now.speed = Number(event.target.value); });
  $("window").addEventListener("change", event => { now.window = Number(event.target.value); changed(); });
  $("shade").addEventListener("change", event => { now.shade = event.target.value; legend(); changed(); });
  if (!tables.moves) $("window").disabled = true;
  if (!tables.moves && !(windows && windows.W)) $("shade").disabled = true;
}

function faster(change) {
  const at = SPEEDS.indexOf(now.speed) + change;
  if (at >= 0 && at < SPEEDS.length) $("speed").value = now.speed = SPEEDS[at];
}

function buttons() {
  const actions = {home: () => go(facts.first), end: () => go(last), back: () => go(now.cycle - step),
    next: () => go(now.cycle + step), play, closer: () => zoom(1.5), farther: () => zoom(1 / 1.5),
    whole: () => { fit(); redraw(); }};
  for (const id in actions) $(id).addEventListener("click", actions[id]);
  $("cycle").addEventListener("change", event => {
    const cycle = Number(event.target.value.replace(/[ ,_]/g, ""));
    if (Number.isFinite(cycle)) go(cycle);
    event.target.blur();
  });
  $("search").addEventListener("submit", event => { event.preventDefault(); find($("words").value); });
  document.addEventListener("keydown", event => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape") { if (typing) event.target.blur(); leave(); return; }
    if (typing && event.target.type !== "checkbox" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target.tagName === "BUTTON") return;  // it presses the button
    const far = event.shiftKey ? 10 * step : step;
    const keys = {" ": play, ArrowLeft: () => go(now.cycle - far), ArrowRight: () => go(now.cycle + far),
      Home: actions.home, End: actions.end, ArrowUp: () => faster(1), ArrowDown: () => faster(-1),
      "+": actions.closer, "-": actions.farther};
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
}

// The whole run above one of its parts: a bar for each, as high as it has events per cycle.
function drawStrip() {
  const {edges, events, at} = facts.parts, [pen, width, height] = sized($("strip"));
  const x = cycle => (cycle - edges[0]) / (edges[edges.length - 1] - edges[0]) * width;
  const rates = events.map((count, k) => count / (edges[k + 1] - edges[k])), most = Math.max(...rates, 1e-9);
  rates.forEach((rate, k) => {
    const high = Math.max(2, rate / most * height), left = x(edges[k]);
    pen.fillStyle = k === at ? look.mark : look.link;
    pen.fillRect(left, height - high, Math.max(1, x(edges[k + 1]) - left), high);
  });
}

function partsOfRun() {
  if (!facts.parts) return;
  const {edges, at} = facts.parts, count = edges.length - 1, strip = $("strip");
  $("parts").hidden = false;
  $("part").textContent = `part ${whole(at + 1)} of ${whole(count)}`;
  $("earlier").disabled = at === 0;
  $("later").disabled = at === count - 1;
  $("earlier").addEventListener("click", () => go(edges[at] - 1));
  $("later").addEventListener("click", () => go(edges[at + 1]));
  strip.addEventListener("click", event => {
    const box = strip.getBoundingClientRect(), part = (event.clientX - box.left) / box.width;
    go(Math.floor(edges[0] + part * (edges[count] - edges[0])));
  });
  new ResizeObserver(drawStrip).observe(strip);
}

function pointers() {
  const canvas = $("fabric"), down = new Map();
  let moved = 0, apart = 0;
  const at = event => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const distance = () => {
    const [[ax, ay], [bx, by]] = [...down.values()];
    return Math.hypot(ax - bx, ay - by);
  };
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, at(event));
    if (down.size === 1) moved = 0;
    if (down.size === 2) { apart = distance(); moved = 99; }
  });
  canvas.addEventListener("pointermove", event => {
    if (!down.has(event.pointerId)) return;
    const [x, y] = at(event), [ox, oy] = down.get(event.pointerId);
    down.set(event.pointerId, [x, y]);
    if (down.size === 2) {
      const far = distance();
      if (apart && far) zoom(far / apart, x, y);
      apart = far;
      return;
    }
    moved += Math.abs(x - ox) + Math.abs(y - oy);
    if (moved < 4) return;
    now.x -= (x - ox) / now.scale;
    now.y -= (y - oy) / now.scale;
    now.fitted = false;
    redraw();
  });
  const up = event => {
    if (!down.delete(event.pointerId) || moved >= 4 || event.type === "pointercancel") return;
    const [x, y] = at(event), u = Math.floor(now.x + x / now.scale), v = Math.floor(now.y + y / now.scale);
    now.pe = u >= 0 && v >= 0 && u < run.width && v < run.height ? v * run.width + u : -1;
    now.way = null;
    changed();
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), ...at(event));
  }, {passive: false});
  const slider = $("time");
  const there = event => {
    if (event.buttons !== 1) return;
    const box = slider.getBoundingClientRect();
    go(Math.floor(facts.first + (event.clientX - box.left) / box.width * (facts.stop - facts.first)));
  };
  slider.addEventListener("pointerdown", event => { slider.setPointerCapture(event.pointerId); there(event); });
  slider.addEventListener("pointermove", there);
}

theme();
say();
choices();
buttons();
partsOfRun();
pointers();
legend();  // it takes room from the fabric
fit();
fromAddress();
addEventListener("hashchange", () => { fromAddress(); changed(); });
new ResizeObserver(() => { if (now.fitted) fit(); redraw(); }).observe($("sight"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  theme();
  legend();
  if (facts.parts) drawStrip();
  changed();
});
const {speed} = Model.fromAddress(location.hash);
if (SPEEDS.includes(speed)) {  // it played on from the part before
  $("speed").value = now.speed = speed;
  play();
}
changed();
document.documentElement.dataset.ready = "yes";
})();
