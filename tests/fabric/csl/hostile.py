"""Sources that would take a compiler without limits for ever, or fill the memory: each with a piece of its refusal."""

from __future__ import annotations

from tests.fabric.csl.sources import layout_of, running

__all__ = ["HOSTILE"]

STEPS, INSTANCES = "steps", "more than 4,000 instances"
CODE = "takes more than 60,000 instructions"
DEEP, BYTES = "deeper than 400 levels", "a PE has 49,152"


def comptime(body: str, *declarations: str) -> str:
    """Return a program that does something at compile time."""
    return "\n".join([*declarations, f"comptime {{ {body} }}", ""])


def nested(count: int, opening: str, inner: str, closing: str) -> str:
    """Return something inside of itself."""
    return opening * count + inner + closing * count


ENDLESS = {
    "while": (comptime("while (true) { }"), STEPS),
    "while that counts up": (comptime("var i: i32 = 0; while (i >= 0 or i < 0) { i += 1; }"), STEPS),
    "while that counts nothing": (comptime("var i: u16 = 0; while (i < 9) : (i += 0) { }"), STEPS),
    "while that continues": (comptime("while (true) { continue; }"), STEPS),
    "loops in loops": (
        comptime("for (@range(i32, 2000)) |i| { for (@range(i32, 2000)) |k| { if (i == k) { continue; } } }"), STEPS,
    ),
    "a long range": (comptime("for (@range(i32, 1000000000)) |i| { if (i < 0) { break; } }"), STEPS),
    "a long range of 64 bits": (comptime("for (@range(u64, 18446744073709551615)) |i| { _ = i; }"), STEPS),
    "a long range of a layout": (
        layout_of("var n: i32 = 0; for (@range(i32, 1000000000)) |i| { n += i; }"), STEPS,
    ),
    "a range without a type": (comptime("for (@range(comptime_int, 100000000000000000000000)) |i| { _ = i; }"), STEPS),
    "an inlined while": (running("inline while (true) { y += 1; }", "var y: i16 = 0;"), STEPS),
    "an inlined for": (running("inline for (@range(i32, 100000000)) |i| { y += 1; }", "var y: i16 = 0;"), STEPS),
    "calls that call": (comptime("f(0);", "fn f(n: i32) void { f(n + 1); }"), "calls nest deeper"),
    "calls that call each other": (
        comptime("f(0);", "fn f(n: i32) void { g(n); }", "fn g(n: i32) void { f(n); }"), "calls nest deeper",
    ),
    "calls that fork": (
        comptime("_ = fib(60);", "fn fib(n: i32) i32 { if (n < 2) { return n; } return fib(n - 1) + fib(n - 2); }"),
        STEPS,
    ),
    "a constant that takes long": (
        "fn fib(n: i32) i32 { if (n < 2) { return n; } return fib(n - 1) + fib(n - 2); }\n"
        + "const k = fib(50);\n" + comptime("_ = k;"), STEPS,
    ),
    "a param's default that takes long": (
        "fn count() i32 { var n: i32 = 0; while (n >= 0) { n ^= 1; } return n; }\nparam p: i32 = count();\n"
        + comptime("_ = p;"), STEPS,
    ),
    "a size that takes long": (
        "fn count() i32 { var n: i32 = 0; while (n >= 0) { n ^= 1; } return n; }\nvar a: [count()]i16;\n"
        + comptime("_ = &a;"), STEPS,
    ),
    "instances": (
        running("f(1);", "var y: i16 = 0;", "fn f(comptime n: i32) void { y += 1; f(n + 1); }"), INSTANCES,
    ),
    "instances in turn": (
        running("f(1);", "fn f(comptime n: i32) void { g(n); }", "fn g(comptime n: i32) void { f(n + 1); }"), INSTANCES,
    ),
    "instances that fork": (
        running("f(1);", "fn f(comptime n: i32) void { f(2 * n); f(2 * n + 1); }"), "more than",
    ),
}  # fmt: skip

LARGE = {
    "an array of zeros": ("var a = @zeros([1000000000]i32);\n" + comptime("_ = &a;"), BYTES),
    "an array of constants": ("var a = @constants([1000000000]i32, 7);\n" + comptime("_ = &a;"), BYTES),
    "an array without a value": ("var a: [1000000000]i32;\n" + comptime("_ = &a;"), BYTES),
    "an array a word too large": ("var a = @zeros([24577]u16);\n" + comptime("_ = &a;"), BYTES),
    "an array of bytes too large": ("var a = @zeros([49154]u8);\n" + comptime("_ = &a;"), BYTES),
    "many dimensions": ("var a = @zeros([4000, 4000, 4000]u16);\n" + comptime("_ = &a;"), BYTES),
    "a local array": (running("var a: [1000000]i16; a[0] = 1;"), BYTES),
    "an array of a layout": (layout_of("const a = @zeros([1000000000]i32); _ = a;"), "elements"),
    "an array of comptime numbers": (comptime("const a = @constants([1000000000]i32, 1); _ = a;"), BYTES),
    "a string that doubles": (comptime('var s = "ab"; while (true) { s = @strcat(s, s); }'), "characters"),
    "a number that squares": (comptime("var s: comptime_int = 3; while (s > 0) { s = s * s; }"), "14,000 bits"),
    "a shift": (comptime("const x = 1 << 1000000000; _ = x;"), "too far"),
    "digits": (f"const x = {'9' * 5000};\n" + comptime("_ = x;"), "5,000 digits"),
    "hexadecimal digits": (f"const x = 0x{'f' * 50000};\n" + comptime("_ = x;"), "digits"),
    "a file without an end": (comptime('const x = @import_comptime_value(i32, "/dev/zero"); _ = x;'), "no plain file"),
    "a file that is a directory": (comptime('const x = @import_comptime_value(i32, "/"); _ = x;'), "no plain file"),
    "a module without an end": ('const m = @import_module("/dev/zero");\n' + comptime("_ = m;"), "no file"),
}  # fmt: skip

NESTED = {
    "blocks": (running(nested(2000, "{", "", "}")), DEEP),
    "ifs": (running(nested(1000, "if (x == 1) {", "x = 2;", "}"), "var x: i16 = 0;"), DEEP),
    "ifs without braces": (running("if (x == 1) " * 1000 + "x = 2;", "var x: i16 = 0;"), DEEP),
    "else ifs": (running("if (x == 1) { x = 2; } else " * 1000 + "{ x = 3; }", "var x: i16 = 0;"), DEEP),
    "loops": (running(nested(1000, "while (x == 1) {", "x = 2;", "}"), "var x: i16 = 0;"), DEEP),
    "sums in brackets": (running("x = " + nested(800, "x + (", "1", ")") + ";", "var x: i16 = 0;"), DEEP),
    "a long sum": (running("x = " + " + ".join(["x"] * 2000) + ";", "var x: i16 = 0;"), DEEP),
    "negations": (running("x = " + "-" * 2000 + "x;", "var x: i16 = 0;"), DEEP),
    "structs": ("const s = " + nested(1000, ".{ .a = ", "1", " }") + ";\n" + comptime("_ = s;"), DEEP),
    "pointers": ("var p: " + "*" * 2000 + "i16;\n" + comptime("_ = &p;"), DEEP),
    "calls": (running("_ = " + nested(1000, "f(", "1", ")") + ";", "fn f(x: i16) i16 { return x; }"), DEEP),
}

FORKS = "".join(f"fn f{k}(a: i16) i16 {{ return f{k + 1}(a) + f{k + 1}(a + 1); }}\n" for k in range(40))
CHAIN = "const c0 = 1;\n" + "".join(f"const c{k} = c{k - 1} + 1;\n" for k in range(1, 2000))
MANY = "".join(f"var v{k}: i16 = x + {k}; " for k in range(3000))
GROWING = {
    "locals": (running(MANY + "".join(f"y += v{k}; " for k in range(3000)), "var x: i16;", "var y: i16;"), BYTES),
    "calls that fork in place": (
        running("x = f0(x);", FORKS + "fn f40(a: i16) i16 { return a; }", "var x: i16;"),
        CODE,
    ),
    "turns in place": (running("inline for (@range(u16, 20000)) |i| { a[i] = i; }", "var a: [20000]u16;"), "steps"),
    "a struct in each instance": (running("f(1);", "fn f(x: anytype) void { f(.{ .a = x }); }"), STEPS),
    "messages": (comptime("var i: u32 = 0; while (i < 1000000) : (i += 1) { @comptime_print(i); }"), STEPS),
    "constants that need each other": (CHAIN + comptime("_ = c1999;"), "a chain of more than 300"),
    "members": (
        "const E = enum(u16) { " + ", ".join(f"A{k}" for k in range(66000)) + " };\n" + comptime("_ = E.A0;"),
        "the number 65536 of 'A65536' does not fit into u16",
    ),
}

TWICE = "".join(f"const s{k + 1} = .{{ s{k}, s{k} }};\n" for k in range(60))
PAIRS = "".join(f"const S{k + 1} = struct {{ a: S{k}, b: S{k} }};\n" for k in range(60))
BOTH = "".join(f"fn g{k + 2}() void {{ g{k + 1}(); g{k}(); }}\n" for k in range(60))
LEAVES = "fn g0() void { y += 1; }\nfn g1() void { y += 2; }\nvar y: i16;"
PARTS = "parts, those inside"
DOUBLING = {
    "structs of a struct": ("const s0 = .{ 1, 2, 3 };\n" + TWICE + comptime("_ = s60;"), PARTS),
    "a struct of itself": (comptime("var s = .{1}; for (@range(i16, 60)) |i| { s = .{ s, s }; }"), PARTS),
    "structs that are printed": ("const s0 = .{ 1 };\n" + TWICE + comptime("@comptime_print(s60);"), PARTS),
    "a struct of a function": (
        "const s0 = .{ 1 };\n" + TWICE + running("f(s60);", "fn f(comptime s: anytype) void { }"), PARTS,
    ),
    "types of types": ("const S0 = struct { a: i16 };\n" + PAIRS + running("_ = &v;", "var v: S60;"), BYTES),
    "functions that call two": (
        running("for (@range(u16, n)) |i| { g61(); }", BOTH, LEAVES, "var n: u16;"), "instructions",
    ),
    "a loop per line": (
        running(
            "for (@range(u16, n)) |i| { a[i] = a[i] * 1.5 + a[(i + 1) & 63] / 3.0; }\n" * 1000,
            "var a: [64]f32; var n: u16;",
        ),
        BYTES,
    ),
    "a choice per line": (running("if (y > 1) { y += 1; } else { y += 2; }\n" * 1300, "var y: u16;"), BYTES),
    "functions in a chain": (
        running("g0();", "".join(f"fn g{k}() void {{ y += 1; g{k + 1}(); }}\n" for k in range(3000)),
                "fn g3000() void { }", "var y: i16;"), "nests deeper here",
    ),
    "two layouts": (layout_of("") + "layout { @set_rectangle(1, 1); }\n", "two layout blocks"),
}  # fmt: skip

HOSTILE = {
    **{f"doubling: {name}": case for name, case in DOUBLING.items()},
    **{f"growing: {name}": case for name, case in GROWING.items()},
    **{f"endless: {name}": case for name, case in ENDLESS.items()},
    **{f"large: {name}": case for name, case in LARGE.items()},
    **{f"nested: {name}": case for name, case in NESTED.items()},
}
