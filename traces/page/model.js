"use strict";
// What a page knows of a run, and what was at work in which cycle.  Nothing here touches the document, so that the same
// text runs without a browser.  Numbers and names are those of traces/page/columns.py.
const Model = (() => {

const ENDLESS = 0xFFFFFFFF, RAMP = 4, CE = 5;
const HOST = 5;  // bit of a grant's outputs
const STEPS = [[-1, 0], [1, 0], [0, -1], [0, 1]];  // W, E, N, S

// ---- columns -----------------------------------------------------------------------------------------------

function bytesOf(text) {
  const raw = atob(text), found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found;
}

const EXTRA_LENGTH = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const EXTRA_DISTANCE = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12,
  13, 13];
const LENGTH_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

function bases(extra, first) {
  const found = [];
  for (const bits of extra) { found.push(first); first += 1 << bits; }
  return found;
}
const BASE_LENGTH = bases(EXTRA_LENGTH, 3), BASE_DISTANCE = bases(EXTRA_DISTANCE, 1);
BASE_LENGTH[28] = 258;

// Codes of a Huffman table in canonical order: how many there are of each length, and their symbols.
function table(lengths) {
  const counts = new Uint16Array(16), symbols = new Uint16Array(lengths.length), offsets = new Uint16Array(16);
  for (const length of lengths) counts[length]++;
  counts[0] = 0;
  for (let n = 1; n < 15; n++) offsets[n + 1] = offsets[n] + counts[n];
  lengths.forEach((length, symbol) => { if (length) symbols[offsets[length]++] = symbol; });
  return {counts, symbols};
}

// Return what a zlib stream holds; for browsers that cannot do it themselves.
function inflate(bytes, size) {
  const out = new Uint8Array(size);
  let at = 2, bit = 0, held = 0, end = 0;  // two bytes of header
  function take(n) {
    while (bit < n) { held |= bytes[at++] << bit; bit += 8; }
    const found = held & ((1 << n) - 1);
    held >>>= n; bit -= n;
    return found;
  }
  function symbol({counts, symbols}) {
    let code = 0, first = 0, index = 0;
    for (let n = 1; n < 16; n++) {
      code |= take(1);
      if (code - first < counts[n]) return symbols[index + code - first];
      index += counts[n]; first = (first + counts[n]) << 1; code <<= 1;
    }
    throw new Error("damaged data");
  }
  function lengthsOf(count, codes) {
    const found = [];
    while (found.length < count) {
      const one = symbol(codes);
      if (one < 16) { found.push(one); continue; }
      const value = one === 16 ? found[found.length - 1] : 0;
      let times = one === 16 ? 3 + take(2) : one === 17 ? 3 + take(3) : 11 + take(7);
      while (times--) found.push(value);
    }
    return found;
  }
  for (let last = 0; !last;) {
    last = take(1);
    const kind = take(2);
    if (kind === 0) {
      held = bit = 0;
      const length = bytes[at] | bytes[at + 1] << 8;
      out.set(bytes.subarray(at + 4, at + 4 + length), end);
      at += 4 + length; end += length;
      continue;
    }
    let literals, distances;
    if (kind === 1) {
      literals = table([...Array(288).keys()].map(k => k < 144 ? 8 : k < 256 ? 9 : k < 280 ? 7 : 8));
      distances = table(Array(30).fill(5));
    } else {
      const counts = [257 + take(5), 1 + take(5)], lengths = Array(19).fill(0);
      for (let k = 4 + take(4), i = 0; i < k; i++) lengths[LENGTH_ORDER[i]] = take(3);
      const all = lengthsOf(counts[0] + counts[1], table(lengths));
      literals = table(all.slice(0, counts[0]));
      distances = table(all.slice(counts[0]));
    }
    for (let one; (one = symbol(literals)) !== 256;) {
      if (one < 256) { out[end++] = one; continue; }
      const length = BASE_LENGTH[one - 257] + take(EXTRA_LENGTH[one - 257]), far = symbol(distances);
      const distance = BASE_DISTANCE[far] + take(EXTRA_DISTANCE[far]);
      for (let k = 0; k < length; k++, end++) out[end] = out[end - distance];
    }
  }
  return out;
}

async function inflated(bytes, size, own) {
  if (own || typeof DecompressionStream === "undefined") return inflate(bytes, size);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Return the numbers of a column of traces/page/packing.py.
async function unpack(column, count, own) {
  const width = column.bytes, planes = await inflated(bytesOf(column.data), count * width, own);
  const Kind = column.delta || width === 4 ? Uint32Array : width === 2 ? Uint16Array : Uint8Array;
  const found = new Kind(count);
  for (let k = 0; k < width; k++) for (let i = 0, p = k * count; i < count; i++) found[i] |= planes[p + i] << 8 * k;
  if (column.delta) for (let i = 1; i < count; i++) found[i] += found[i - 1];
  return found;
}

// ---- order -------------------------------------------------------------------------------------------------

// Return the places of whole numbers below 2^32 in rising order; equal ones keep theirs.
function orderOf(values) {
  const count = values.length;
  let order = Uint32Array.from({length: count}, (_, k) => k), most = 0;
  for (const value of values) if (value > most) most = value;
  for (let shift = 0; shift < 32 && most >>> shift > 0; shift += 16) {
    const starts = new Uint32Array(65537), next = new Uint32Array(count);
    for (const value of values) starts[(value >>> shift & 0xFFFF) + 1]++;
    for (let k = 0; k < 65536; k++) starts[k + 1] += starts[k];
    for (const k of order) next[starts[values[k] >>> shift & 0xFFFF]++] = k;
    order = next;
  }
  return order;
}

// Return the first place from `low` to `high` at which a rising value is above `limit`.
function after(values, limit, low, high) {
  while (low < high) {
    const middle = low + high >>> 1;
    if (values[middle] > limit) high = middle; else low = middle + 1;
  }
  return low;
}

// Return where the rows of each of `count` PEs begin, and the end.
function startsOf(pe, count) {
  const found = new Uint32Array(count + 1);
  for (const one of pe) found[one + 1]++;
  for (let k = 0; k < count; k++) found[k + 1] += found[k];
  return found;
}

// ---- what lasts --------------------------------------------------------------------------------------------

// Whether a row that has begun still lasts in a cycle.
function lasts(rows, row, cycle) {
  return rows.length[row] === ENDLESS || rows.begin[row] + rows.length[row] > cycle;
}

// How many rows of a table last in a cycle, per PE.  Going from cycle to cycle costs what begins and ends between.
class Lasting {
  constructor(rows, count) {
    this.rows = rows;
    this.counts = new Uint16Array(count);
    this.ends = Uint32Array.from(rows.length, (length, k) => length === ENDLESS ? ENDLESS : rows.begin[k] + length);
    this.byBegin = orderOf(rows.begin);
    this.byEnd = orderOf(this.ends);
    this.begun = this.ended = 0;
  }
  seek(cycle) {
    const {rows: {pe, begin}, ends, byBegin, byEnd, counts} = this, all = byBegin.length;
    while (this.begun < all && begin[byBegin[this.begun]] <= cycle) counts[pe[byBegin[this.begun++]]]++;
    while (this.begun > 0 && begin[byBegin[this.begun - 1]] > cycle) counts[pe[byBegin[--this.begun]]]--;
    while (this.ended < all && ends[byEnd[this.ended]] <= cycle) counts[pe[byEnd[this.ended++]]]--;
    while (this.ended > 0 && ends[byEnd[this.ended - 1]] > cycle) counts[pe[byEnd[--this.ended]]]++;
    return counts;
  }
}

// How many rows of a table last, on average over each of `parts` stretches from `first` to `stop`.
function averages(rows, first, stop, parts) {
  const step = (stop - first) / parts, number = new Float64Array(parts + 2), sum = new Float64Array(parts + 2);
  const book = (cycle, sign) => {
    const k = cycle <= first ? 0 : Math.min(parts + 1, Math.floor((cycle - first) / step) + 1);
    number[k] += sign; sum[k] += sign * Math.max(cycle, first);
  };
  rows.begin.forEach((begin, k) => {
    book(begin, 1);
    if (rows.length[k] !== ENDLESS) book(begin + rows.length[k], -1);
  });
  const found = new Float64Array(parts);
  let n = number[0], s = sum[0], before = n * first - s;
  for (let k = 0; k < parts; k++) {
    n += number[k + 1]; s += sum[k + 1];
    const now = n * (first + (k + 1) * step) - s;
    found[k] = (now - before) / step;
    before = now;
  }
  return found;
}

// ---- the run -----------------------------------------------------------------------------------------------

class Run {
  constructor(facts, tables) {
    this.facts = facts;
    this.tables = tables;
    [this.left, this.top, this.width, this.height] = facts.region;
    this.count = this.width * this.height;
    this.starts = {};
    for (const name in tables) if (tables[name].pe) this.starts[name] = startsOf(tables[name].pe, this.count);
    this.lasting = {};
    for (const name of ["tasks", "operations", "waits"]) {
      if (tables[name]) this.lasting[name] = new Lasting(tables[name], this.count);
    }
    this.kind = Object.fromEntries(facts.kinds.map((name, k) => [name, k]));
    const moves = tables.moves;
    this.order = moves ? orderOf(moves.cycle) : new Uint32Array(0);
    this.times = Uint32Array.from(this.order, row => moves.cycle[row]);
    this.loads = new Uint32Array(this.count * 5);
    this.from = this.to = 0;  // the part of `order` that `loads` counts
    this.hidden = new Set();
    this.wavelets = this.payloads = null;
  }

  place(pe) { return [this.left + pe % this.width, this.top + Math.floor(pe / this.width)]; }

  // Return the PE at a place, -1 outside.
  at(x, y) {
    const column = x - this.left, row = y - this.top;
    return column >= 0 && column < this.width && row >= 0 && row < this.height ? row * this.width + column : -1;
  }

  neighbour(pe, direction) {
    const [x, y] = this.place(pe);
    return this.at(x + STEPS[direction][0], y + STEPS[direction][1]);
  }

  seek(cycle) { for (const name in this.lasting) this.lasting[name].seek(cycle); }

  // Return the row that lasts in a cycle among those from `low` to `high`, -1 for none.
  lastsAt(name, cycle, low, high) {
    const rows = this.tables[name], found = after(rows.begin, cycle, low, high) - 1;
    return found >= low && lasts(rows, found, cycle) ? found : -1;
  }

  // Return the row of a task or a wait of a PE in a cycle, -1 for none.
  of(name, pe, cycle) {
    if (!this.tables[name]) return -1;
    return this.lastsAt(name, cycle, this.starts[name][pe], this.starts[name][pe + 1]);
  }

  // Return the rows of the operations of a PE in a cycle.
  operations(pe, cycle) {
    const rows = this.tables.operations, found = [];
    if (!rows) return found;
    const stop = this.starts.operations[pe + 1];
    for (let low = this.starts.operations[pe]; low < stop;) {
      const high = after(rows.lane, rows.lane[low], low, stop), row = this.lastsAt("operations", cycle, low, high);
      if (row >= 0) found.push(row);
      low = high;
    }
    return found;
  }

  // Return the last rows of a table of a PE that begin in a cycle or before it, and the first ones after it, in order;
  // at most `most` of them, about as many before as after, of those that fit.
  near(name, pe, cycle, most, fits) {
    const rows = this.tables[name], begin = rows.begin || rows.cycle, before = [], behind = [];
    const stop = this.starts[name][pe + 1];
    for (let low = this.starts[name][pe]; low < stop;) {  // operations stand thread by thread, others are one part
      const high = name === "operations" ? after(rows.lane, rows.lane[low], low, stop) : stop;
      const at = after(begin, cycle, low, high);
      for (let row = at - 1, left = most; row >= low && left; row--) if (fits(row)) { before.push(row); left--; }
      for (let row = at, left = most; row < high && left; row++) if (fits(row)) { behind.push(row); left--; }
      low = high;
    }
    const sorted = list => list.sort((a, b) => begin[a] - begin[b] || a - b);
    const found = [...sorted(before).slice(-most), ...sorted(behind).slice(0, most)];
    const first = Math.min(before.length, most) - (most >> 1);
    const start = Math.max(0, Math.min(first, found.length - most));
    return found.slice(start, start + most);
  }

  // Return places in `order`: of the first event of a wavelet in cycle `first` or later, and of that from `stop` on.
  range(first, stop) {
    return [first, stop].map(cycle => cycle > 0 ? after(this.times, cycle - 1, 0, this.times.length) : 0);
  }

  shown(row) { return !this.hidden.has(this.tables.moves.color[row]); }

  hide(colors) {
    this.hidden = new Set(colors);
    this.loads.fill(0);
    this.from = this.to = 0;
  }

  // Of a run that has counters per window only: return the first row of the window of a cycle, and its cycles.
  windowAt(cycle) {
    const {facts} = this, number = Math.floor((cycle - facts.first) / facts.window);
    return [number * this.count, Math.min(facts.window, facts.stop - facts.first - number * facts.window)];
  }

  // Return per PE the cycles of a window in which it calculated, or waited, and per PE and output the wavelets.
  windowOf(cycle) {
    const rows = this.tables.windows, [start] = this.windowAt(cycle), {count} = this;
    if (this.held && this.held.start === start) return this.held;
    const found = {start, works: new Uint32Array(count), waits: new Uint32Array(count), loads: null};
    for (const [use, , , group] of this.facts.uses) {
      if (group !== "idle") for (let pe = 0; pe < count; pe++) found[group][pe] += rows[use][start + pe];
    }
    if (rows.W) {
      found.loads = new Uint32Array(count * 5);
      ["W", "E", "N", "S"].forEach((port, out) => {
        for (let pe = 0; pe < count; pe++) found.loads[pe * 5 + out] = rows[port][start + pe];
      });
    }
    return this.held = found;
  }

  // Return what `averages` gives, of the cycles in windows in which PEs calculated or waited, and wavelets per cycle.
  windowAverages(parts) {
    const {facts} = this, found = {works: [], waits: [], moved: []}, all = values => values.reduce((a, b) => a + b, 0);
    for (let k = 0, known = null; k < parts; k++) {
      const cycle = Math.floor(facts.first + (k + 0.5) * (facts.stop - facts.first) / parts);
      const [start, cycles] = this.windowAt(cycle);
      if (!known || known.start !== start) {
        const {works, waits, loads} = this.windowOf(cycle);
        known = {start, works: all(works) / cycles, waits: all(waits) / cycles, moved: loads ? all(loads) / cycles : 0};
      }
      for (const name in found) found[name].push(known[name]);
    }
    return found;
  }

  // Return per PE and output the wavelets of shown colors from cycle `first` to `stop` - 1.
  loadsOf(first, stop) {
    const [from, to] = this.range(first, Math.max(first, stop));
    if (from >= this.to || to <= this.from) {
      for (; this.to > this.from; this.to--) this.load(this.to - 1, -1);
      this.from = this.to = from;
    }
    while (this.from > from) this.load(--this.from, 1);
    while (this.to < to) this.load(this.to++, 1);
    while (this.from < from) this.load(this.from++, -1);
    while (this.to > to) this.load(--this.to, -1);
    return this.loads;
  }

  load(at, sign) {
    const row = this.order[at], moves = this.tables.moves;
    if (moves.kind[row] !== this.kind.depart || !this.shown(row)) return;
    for (let outputs = moves.aux[row] & 31, k = moves.pe[row] * 5; outputs; outputs >>= 1, k++) {
      if (outputs & 1) this.loads[k] += sign;
    }
  }

  // Return {color * 8 + port: wavelets} of the queues of a PE that hold any at the end of a cycle; port 5 is the queue
  // of the CE.  Wavelets on a link are in none.
  queues(pe, cycle) {
    const moves = this.tables.moves, found = new Map(), kind = this.kind;
    const hop = this.facts.late["router.hop"], ramp = this.facts.late["ramp.in"];
    const add = (color, port, sign, at) => {
      if (at > cycle) return;
      const key = color * 8 + port;
      found.set(key, (found.get(key) || 0) + sign);
    };
    for (let row = this.starts.moves[pe]; row < this.starts.moves[pe + 1]; row++) {
      const at = moves.cycle[row], color = moves.color[row], aux = moves.aux[row], flags = moves.flags[row];
      if (at > cycle) break;
      if (moves.kind[row] === kind.inject) add(color, RAMP, 1, at);
      else if (moves.kind[row] === kind.take) add(color, CE, -1, at);
      else if (moves.kind[row] === kind.enter) add(color, aux === RAMP ? CE : aux, 1, at + (aux === RAMP ? ramp : hop));
      else {
        add(color ^ (flags >> 4 & 1), flags >> 1 & 7, -1, at);
        if (aux >> RAMP & 1) add(color, CE, 1, at + ramp);
      }
    }
    for (let port = 0; port < 4; port++) {
      const other = this.neighbour(pe, port);
      if (other < 0) continue;
      for (let row = this.starts.moves[other]; row < this.starts.moves[other + 1]; row++) {
        if (moves.cycle[row] + hop > cycle) break;
        if (moves.kind[row] === kind.depart && moves.aux[row] >> (port ^ 1) & 1) {
          add(moves.color[row], port, 1, moves.cycle[row] + hop);
        }
      }
    }
    return new Map([...found].filter(([, depth]) => depth).sort(([a], [b]) => a - b));
  }

  // Find the number of the wavelet of each event in `order`, for queues are first in, first out (traces/paths.py), and
  // the payload of each row.
  identify() {
    if (this.wavelets) return;
    const moves = this.tables.moves, kind = this.kind, queues = new Map();
    const found = new Uint32Array(this.order.length), payloads = new Uint32Array(this.order.length), firsts = [];
    const put = (pe, color, port, number) => {
      if (pe < 0) return;
      const key = (pe * 6 + port) * 256 + color, queue = queues.get(key);
      if (queue) queue.held.push(number); else queues.set(key, {held: [number], head: 0});
    };
    for (let k = 0; k < this.order.length; k++) {
      const row = this.order[k], pe = moves.pe[row], color = moves.color[row], aux = moves.aux[row];
      const flags = moves.flags[row], what = moves.kind[row];
      let number;
      if (what === kind.inject || what === kind.enter) {
        number = firsts.length;
        put(pe, color, what === kind.inject ? RAMP : aux === RAMP ? CE : aux, number);
      } else {
        const key = what === kind.take ? (pe * 6 + CE) * 256 + color
          : (pe * 6 + (flags >> 1 & 7)) * 256 + (color ^ (flags >> 4 & 1));
        const queue = queues.get(key);
        number = queue && queue.head < queue.held.length ? queue.held[queue.head++] : firsts.length;
      }
      if (what === kind.depart) {
        for (let out = 0; out < 4; out++) if (aux >> out & 1) put(this.neighbour(pe, out), color, out ^ 1, number);
        if (aux >> RAMP & 1) put(pe, color, CE, number);
      }
      found[k] = number;
      payloads[row] = moves.data[row];
      if (number < firsts.length) payloads[row] ^= payloads[firsts[number]]; else firsts.push(row);
    }
    this.wavelets = found;
    this.payloads = payloads;
  }

  payload(row) {
    this.identify();
    return this.payloads[row];
  }

  // Return the rows of the events of the wavelet of a row of moves, in order.
  way(row) {
    this.identify();
    const numbers = this.wavelets, moves = this.tables.moves;
    const [from, to] = this.range(moves.cycle[row], moves.cycle[row] + 1);
    let k = from;
    while (k < to && this.order[k] !== row) k++;
    const found = [];
    numbers.forEach((number, at) => { if (number === numbers[k]) found.push(this.order[at]); });
    return found;
  }

  // Return {what, total, found}: what a text names, how often there is any, and the first rows [table, row] from a
  // cycle on, at most `limit`, ["marks", number] of a phase; or {what: "place", pe} or {what: "cycle", cycle}.
  search(text, cycle, limit) {
    const words = text.trim().toLowerCase();
    let match = /^(\d+)\s*,\s*(\d+)$/.exec(words);
    if (match) return {what: "place", pe: this.at(Number(match[1]), Number(match[2]))};
    if (/^\d+$/.test(words)) return {what: "cycle", cycle: Number(words)};
    const wanted = [];
    const moves = this.tables.moves;
    const begins = row => moves.kind[row] === this.kind.inject || moves.kind[row] === this.kind.enter;
    if ((match = /^colou?r\s*(\d+)$/.exec(words))) {
      const color = Number(match[1]);
      if (moves) wanted.push(["moves", row => moves.color[row] === color, begins]);
    } else if (/^0x[0-9a-f]{1,8}$/.test(words)) {
      const payload = parseInt(words, 16);
      if (moves) wanted.push(["moves", row => this.payload(row) === payload, begins]);
    } else {
      for (const name of ["tasks", "operations"]) {
        const fits = this.facts[name].map(names => names.some(
          (one, k) => (name === "operations" || k === 0) && one.toLowerCase().includes(words)));
        if (this.tables[name] && words) wanted.push([name, row => fits[this.tables[name].what[row]], null]);
      }
    }
    const found = [], {marks} = this.facts;
    marks.forEach(([, , track, label], k) => {
      if (words && `${track}: ${label}`.toLowerCase().includes(words)) found.push(["marks", k]);
    });
    let total = found.length;
    for (const [name, fits, first] of wanted) {
      let rows = [...this.tables[name].pe.keys()].filter(fits);
      if (first && rows.some(first)) rows = rows.filter(first);  // a wavelet once, where it comes from
      total += rows.length;
      for (const row of rows) found.push([name, row]);
    }
    const when = ([name, row]) => name === "marks" ? marks[row][0]
      : (this.tables[name].begin || this.tables[name].cycle)[row];
    found.sort((a, b) => when(a) - when(b));
    const next = found.findIndex(one => when(one) >= cycle);
    const start = Math.max(0, Math.min(next < 0 ? found.length : next, found.length - limit));
    return {what: "rows", total, skipped: start, found: found.slice(start, start + limit)};
  }
}

async function read(data, own) {
  const tables = {};
  for (const name in data.tables) {
    tables[name] = {};
    for (const key in data.tables[name]) tables[name][key] = await unpack(data.tables[name][key], data.rows[name], own);
  }
  return new Run(data.facts, tables);
}

// ---- addresses ---------------------------------------------------------------------------------------------

// The part of an address behind # says cycle, PE, hidden colors, and how fast the run plays on.
function address({cycle, place, hidden, speed}) {
  const parts = [`cycle=${cycle}`];
  if (place) parts.push(`pe=${place.join(",")}`);
  if (hidden && hidden.length) parts.push(`without=${hidden.join(",")}`);
  if (speed) parts.push(`play=${speed}`);
  return `#${parts.join("&")}`;
}

function fromAddress(text) {
  const found = {cycle: null, place: null, hidden: [], speed: 0};
  for (const part of text.replace(/^#/, "").split("&")) {
    const [key, value] = part.split("=");
    if (!/^\d+(,\d+)*$/.test(value || "")) continue;
    const numbers = value.split(",").map(Number);
    if (key === "cycle") found.cycle = numbers[0];
    if (key === "pe" && numbers.length === 2) found.place = numbers;
    if (key === "without") found.hidden = numbers;
    if (key === "play") found.speed = numbers[0];
  }
  return found;
}

// Return the part of a run, cut at some cycles, that has a cycle; -1 if none has.
function partOf(edges, cycle) {
  const part = after(edges, cycle, 0, edges.length) - 1;
  return part < edges.length - 1 ? part : -1;
}

return {ENDLESS, HOST, STEPS, address, after, averages, fromAddress, inflate, lasts, orderOf, partOf, read, unpack};
})();
if (typeof module !== "undefined") module.exports = Model;
