"""The entries TL100 to TL399 of the error catalogue (codes.py): programs."""

from __future__ import annotations

CODES_OF_PROGRAMS = """TL100 A definition that cannot be replayed
The base of the errors below: an event, record or program is declared in a way that has no exact replay.

TL101 A default or option that does not fit
A mutable default (list, dict, set) of a parameter is state that Timelapse does not see: use a tuple, a frozenset or a declared state. Fields of events and records have no defaults, and may not be called ts, seq, phase or ordinal.

TL102 A type that is not supported
Fields are int, float, bool, str, bytes, tl.Time, Annotated[Decimal, tl.scale(n)], optionals and lists of those; keys int, str, bool, bytes, tl.Time, decimals or tuples of them; values scalars, optionals, tuples and NamedTuples. Names used in annotations must be imported before the class. Default arguments of methods may not be mutable.

TL103 An attribute on self that is not declared
Handlers keep nothing on self but declared states, and parameters do not change. Declare a state: `last: tl.Value[int] = tl.state(default=0)`.

TL104 A generator or async handler
A handler is called once per event and runs to its end. Use a plain `def`, and self.emit(...) instead of yield.

TL105 A program or handler that is put together wrongly
@tl.on takes one or more event classes and decorates a plain method with self and the event. States are declared with a kind, as `seen: tl.Set[int]`; parts of a program that declare one state must agree on its kind and types.

TL106 State outside the program
`global` and `nonlocal`, in handlers and in what they call, write what Timelapse does not see: declare a state. An `except` that catches BaseException would catch self.reject: catch Exception or something narrower.

TL107 A default of a state that is not a literal
A state's default is written as tl.state(default=0), with the value itself and not a name, and is not mutable.

TL108 A state that needs a default
Reading a missing key of this state has no value. Write tl.state(default=...), or make the value optional (int | None).

TL109 A resource's file that is not there
tl.resource(path, load) reads a file; the path is relative to the working directory.

TL113 A handler that does something else the second time
Before a replay the first events of the log (256 at most, 32 where no call is trusted, and no more than a fifth of a second) are processed twice, each event on the same state and then all of them again from the beginning, and what they write, emit, reject and raise is compared. A difference means that something outside the declared states decides with: a variable of a closure, an iterator, an object that its methods change, a library call that draws random numbers. Declare it as a state, or derive it from the event. The run's certificate says how many events were compared. Where later events differ, this does not see it. --allow-impure replays all the same, and compares nothing.

TL114 A clock
A replay would read another time than live did. Use self.now, the event's time.

TL115 Randomness
Two runs would differ. Derive the number from the event: a hash (hashlib) of its fields, or a random.Random seeded with them.

TL116 The outside: files, network, environment, printing
What is out there may have changed, and a slice may run twice or in another process. Read a file through tl.resource, pass values as parameters, put results out with self.emit.

TL117 A mutable global
A module-level list, dict or set that handlers read is state that Timelapse does not see, unless it can be shown that no function changes it; so are iterators (itertools.count), context variables and objects that their methods change. Make it a tuple, a frozenset, a parameter or a state.

TL118 hash() or id()
Both differ from process to process. Use hashlib over the bytes, or the value itself as a key.

TL119 The order of a set
The order in which a set of strings is iterated differs from process to process. Use sorted(...).

TL120 A look back over a length that is not fixed
self.x.last(W) and self.x.ago(L) take a number, a constant of the module or a parameter, or arithmetic of these: how far back a state is kept is settled when the class is defined. For other distances declare tl.state(history=...) and read get(k, at=...).

TL121 A state that does not reach into that time
An operation without a time got at=; a state is read in the past without tl.state(history=...); or a state without a key, which is a plain value in handlers, is to look back or ahead: give it a key.

TL122 A length of time or time zone that does not fit
@tl.on(after=) takes a positive number of microseconds, @tl.every a part of a day or a number of whole days; both also the name of a parameter of type int, in quotes. Zones are names of the IANA database, as Europe/Berlin.

TL200 A value that does not fit
The base of the errors below, which fail the run at the first such event.

TL201 A value of another type
A field, key or value is not of its declared type. bool is not int here; numpy numbers need int(...) or float(...).

TL202 An integer outside int64
Stored integers lie between -2**63 and 2**63 - 1, in the serial meaning too. Intermediate results may be larger.

TL203 A string with lone surrogates
Such a string has no UTF-8 form. Clean it: text.encode("utf-8", "replace").decode().

TL204 NaN in Max, Min or Quantiles
NaN has no place in an order. Test for it (x == x) before adding.

TL205 A time that lies outside
Dated writes and events lie at or after self.now: nothing is written into the past. Reads with at= lie at or before self.now, and no further back than tl.state(history=...) says.

TL206 Derived events without end
One event derived more events than the program allows (1000, or what `class P(tl.Program, loop=...)` says). See that the loop ends, or raise the bound.

TL207 A timer, a sent event or a look back that does not work
An event is sent that no handler listens to, or that a handler waits for with after= (which follows the log's events); a timer's key is no int, str, bool, bytes or tuple of them; a view of the past is written; or last(), ago() were not seen when the class was defined: write self.x.last(...) in a method of the program.

TL208 Something that does not go with other times
In programs that date what they do, send or tick, an event has consequences at other times. `timelapse.serial.run` with quarantine=True would leave those behind and refuses such a program; `tl.run_serial` and `tl.replay` take them out with their event.

TL209 A decimal with more digits than its scale
What is declared as Annotated[Decimal, tl.scale(2)] holds two digits behind the point, and nothing is rounded silently. Say how: `value.quantize(Decimal("0.01"))`, which rounds half to even, or give it another rounding. Division and products of decimals usually need this.

TL300 A pass that the analysis does not allow
This is a bug in Timelapse. Please report it with the program.

TL301 Code without source
Analysis needs the source of handlers and helpers. Without it the function counts as reading and writing every state.

TL302 Recursion
A helper with access to the program calls itself. Write it as a loop.

TL303 A state used as a value
`c = self.friends` hides later reads and writes. Name the state where it is used.

TL304 Nested functions that use the program
A lambda, comprehension function or class inside a handler touches states. Make it a method, or a plain loop.

TL305 self passed to code that analysis cannot see
Pass the values that are needed instead of self.

TL306 Access by name
getattr, setattr, vars, exec, eval and super() with arguments may reach any state. Write the access itself.

TL307 self used as a value
Call methods of the program instead of passing or storing self.

TL308 A generator method that touches states
Its statements run when somebody iterates. Return a list, or write the loop in the handler.

TL309 Source that differs from the running code
The file has changed since it was imported, or the function was replaced. What runs counts; analysis does not use the text.

TL310 An operation on a state that analysis does not know
The operation exists at run time or not; write it with the operations that docs/kinds.md lists, arguments written out.

TL311 A statement that is not analysed
Write it with plain statements: assignments, if, for, while, try, with, calls.

TL312 A method used as a value
Call it where it is needed.

TL313 An event that is sent where it cannot be followed
self.send and self.cancel within try, and what is dated in a program with a method whose text cannot be read, run in log order, with the whole program.

TL314 A write that is dated
add(at=) and the like run in log order, with the whole program, where some method of the program dates writes and its text cannot be read.

TL320 A trusted call
Analysis cannot see into this function (a library), so it is trusted to be pure: to depend on its arguments only. Calls of the standard library that text and numbers often take (re, json, ipaddress, hashlib, datetime, decimal and others) are known, and not listed, unless they take a function, a pattern that may be bytes, the machine's time zone or its locale. The first events of a log are processed twice and compared (TL113). Listed by explain and in the run's certificate.

TL321 A resource's call
The object that a tl.resource loads is trusted to be pure. Listed by explain and in the run's certificate.

TL322 A method that takes an event and is never called
It has neither @tl.on nor a handler that calls it, so it never runs. Decorate it, call it, or remove it. A warning of explain and check.

TL323 An event that is sent and that no handler takes
No handler listens to this type of event, or one waits for it with after= (which follows the log's events). A warning of explain and check: a replay that comes to this line fails with TL207, one that never does is as it should be.

TL350 A plan that cannot be made
The base of the errors below.

TL351 A strategy or state that does not exist
Strategies are scan, by-key, iterate and chain for states; for a whole program staged too.

TL352 A state that needs a slower strategy than allowed
--max-strategy makes this an error (exit 1), for CI. The message has the line and what to write instead.

TL353 A strategy that cannot be forced
A state can only be forced to a strategy that is exact for it and that this version can run.

TL359 A plan that does not hold
Every plan is checked when it is made; this one failed. It is a bug in Timelapse: please report it with the program.
"""
