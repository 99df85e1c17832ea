"""The batch protocol: how each event comes to count exactly once in effect.

Pure: standard library only, no I/O, no clock, no environment, no randomness. The
same code runs in production, on the fakes and in the model.

Authority
=========
Postgres is the only authority. One transaction of the home database holds a batch's
results, the next Kafka offsets, the IDs seen, the window state, the watermark, the
dead letters, the late events and a ledger row. It commits or it does not. Where
outputs live in other databases as well, that COMMIT decides for them. Spark's
checkpoint, the executors' caches and the staging tables can be deleted at any moment
and are rebuilt.

A batch's life
==============
::

    driver                    tasks                     home             participants
    ------                    -----                     ----             ------------
    claim_epoch ------------------------------------>   epoch_claim
    settle what is in doubt ------------------------------------------->  finish
    read_progress <----------------------------------   offsets
    1 plan: Spark fixes half-open offset ranges
                              · planned
    2 stage ------------->    decode, validate, dedup,
                              enrich, aggregate,
                              COPY, tagged by attempt -> staging  ----->  staging
                              · rows_staged
            <-------------    vote: rows, counts
      tally the votes, check the conservation law
                              · voted
    2b keys ------------->    read voted events of a
                              key, its state, its due
                              timers; call functions -> staging
                              · keys_staged
            <-------------    vote: rows, events used
      add these votes         · keys_voted
    3 publish --------------------------------------->  lock the
                                                        pipeline's row,
                                                        fence, compare
                                                        the offsets
      begin_prepare --------------------------------------------------->  move voted
                                                        move voted        rows, marker,
                                                        rows, merge       PREPARE
                                                        windows, ledger   TRANSACTION
                              · branch_prepared (each)
                              · all_prepared
                                                        list of branches,
                                                        COMMIT
                              · decision_committed
    4 finish ---------------------------------------------------------->  COMMIT
                              · branch_committed (each)                   PREPARED
                              · all_committed
    5 seal: Spark writes its commit log; nobody reads it again
                              · sealed

While a batch is published, the next one is planned upon what it will leave, and staged
(``stage_ahead``). Publish transactions follow each other: what a batch was planned upon
is compared under the lock, so one that was staged behind a batch which came to nothing
is never published.

The dotted names are the fault points of ``sinks.faultpoints``. Only a pipeline with
keyed state has a phase 2b. A tick is a batch without events, for timers that are due:
it has no ranges, begins with phase 2b and is recognised by its sequence. A batch that
changes the home only has no participants: nothing is prepared, nothing can be in
doubt.

A pipeline may be content with less (``guarantee``). Its tasks write rows to the result
tables themselves and stage receipts for them; publishing counts the receipts of the
attempts that voted instead of moving rows. Everything else is the same, so offsets and
counts are exact, no event is lost, and rows of attempts or batches that came to
nothing stay beside those that count.

Modules, in the order in which a batch meets them: ``coordinator`` takes it from plan
to ledger, ``stage_ahead`` the next one meanwhile; ``votes`` adds up phase one,
``keyed_votes`` phase 2b; ``publication`` prepares, decides and commits;
``decisions`` and ``offsets`` say whether it may; ``in_doubt`` and ``resolution`` say
what becomes of a branch that a crash has left.

The fence
=========
A driver is identified by its epoch. Claiming one is an insert, so it never waits for
what a dead driver left locked. The claimer then locks the pipeline's row once: a
publish transaction under way has then ended, and each later one finds the claim. A
superseded driver learns it at its next publish, or when its staging tables are gone,
and stops; it must never claim again by itself, or two drivers would fence each other
for ever.

A batch run (``batch_run``) claims an epoch as a driver does, and publishes bounded
input as one batch together with its own name. It fences the driver of a stream; that
one may claim again when the run has published or its process has ended, if no other
driver has claimed meanwhile. A run may correct what was committed before: the rows of
the earlier events go in the transaction that brings its own, and the ledger keeps
their positions.

What may fail, and why nothing is lost or doubled
=================================================
Task attempt dies, hangs or runs twice
    Its rows stay in staging. Only votes that reach the driver name attempts, and
    publishing moves the rows of those attempts only, checking their number.
Driver dies before COMMIT
    Offsets and results are those of the batch before. The next driver starts there.
Driver dies after COMMIT
    The next driver starts behind the batch. Spark's view of it does not matter.
Answer to COMMIT is lost
    The outcome is unknown, never "failed". Publishing is called again; it queues for
    the row lock that the lost transaction holds until it ends, and then compares the
    offsets: ``ALREADY_COMMITTED`` is a success.
Driver dies while branches are prepared
    Undecided, nobody will ever decide them: the next driver, or the resolver, rolls
    them back once a newer claim is there. Decided, they are committed by whoever
    finds them.
PREPARE TRANSACTION arrives when its client is long dead
    It belongs to a claim that is superseded, and is found by the next sweep, which
    follows every batch.
A branch is gone
    That proves nothing. Its marker, a row of the same transaction, proves that it
    was committed; without it the pipeline stops.
A participant goes back in time, or the home does and a participant does not
    Before each batch the newest marker of a branch is held against the newest
    decision of home. Where they differ, what is decided is committed and the two are
    compared again, since a branch may be prepared whose marker is gone. Where they
    differ still, the pipeline stops and says which batches only one side knows.
Server crashes
    UNLOGGED staging is empty afterwards. The number of moved rows differs from the
    votes, the transaction is rolled back, and the batch is staged again.
Database goes back in time (restore, lagging standby)
    Offsets, results, seen IDs and windows go back together. The running driver finds
    its claim or its offsets gone and stops; the next one reads Kafka from there.
A function on keyed state answers differently when it is called again
    Its input is what phase one staged and voted for, and the state of the newest
    published batch; of its answers only those of the attempts that voted count.
Two drivers
    The one with the older epoch is fenced at its next publish.
A result table refuses a row
    The transaction is rolled back, bisection finds the rows, and the batch is staged
    again with these as dead letters, so that every aggregate is right. Then so is the
    batch that was staged behind it.

Invariants
==========
::

    epoch never decreases                        newest epoch only may publish
    stored next_offset == from_offset            or the batch is not published
    read == committed + duplicate + dead + late + expired + filtered
    moved rows == voted rows                     per staging table
    events used by functions == events staged    per stateful output
    last sequence == the plan's                  or the batch is not published
    watermark_after >= watermark_before
    sequence is dense per pipeline
    a branch is committed only if decided, and decided only once all are prepared
    a decided branch is never rolled back
"""
