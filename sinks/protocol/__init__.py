"""The batch protocol: how each event comes to count exactly once in effect.

Pure: standard library only, no I/O, no clock, no environment, no randomness. The
same code runs in production, on the fakes and in the model.

Authority
=========
Postgres is the only authority. One transaction of the home database holds a batch's
results, the next Kafka offsets, the IDs seen, the window state, the watermark, the
dead letters, the late events and a ledger row. It commits or it does not. If some
outputs live in other databases, that COMMIT decides for them too. Spark's checkpoint,
the executors' caches and the staging tables can be deleted at any moment: the driver
rebuilds them.

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
    5 seal: Spark writes its commit log; nothing reads it again
                              · sealed

While a batch is published, the driver plans and stages the next one, on the state that
the first will leave (``StageAhead``). Publish transactions follow each other. Each
compares the state that its batch was planned on with the stored state, under the lock.
So if a batch fails, the batch that was staged behind it is never published.

The dotted names are the fault points of ``tallyweir.sinks.faultpoints``. Only a
pipeline with keyed state has a phase 2b. A tick is a batch without events, for timers
that are due: it has no ranges, begins with phase 2b and is recognised by its sequence.
A batch that changes the home only has no participants: nothing is prepared, nothing can
be in doubt.

A pipeline may choose a weaker guarantee (``guarantee``). Its tasks write rows to the
result tables themselves and stage receipts for them; publishing counts the receipts of
the attempts that voted instead of moving rows. Everything else is the same: offsets and
counts are exact and no event is lost. But rows of failed attempts and batches stay in
the tables, next to the rows that count.

Modules, in the order in which a batch meets them: ``coordinator`` takes it from plan
to ledger, and stages the next one meanwhile; ``votes`` adds up phases one and 2b;
``publisher`` prepares, decides and commits; ``decisions`` and ``offsets`` say whether
it may; ``in_doubt`` and ``resolution`` decide what happens to a branch that a crash has
left.

The fence
=========
A driver is identified by its epoch. Claiming one is an insert, so it never waits for
locks that a dead driver left. The claiming driver then locks the pipeline's row once.
After that, any publish transaction that was under way has ended, and each later one
finds the claim. A superseded driver learns it at its next publish, or when its staging
tables are gone, and stops. It must never claim again by itself: two drivers would fence
each other endlessly.

A batch run (``batch_run``) claims an epoch as a driver does, and publishes bounded
input as one batch together with its own name. It fences the driver of a stream. That
driver may claim again when the run has published or its process has ended, if no other
driver has claimed meanwhile. A run may correct events that were committed before: its
transaction removes the rows of the earlier events and adds its own, and the ledger
keeps the positions of the earlier events.

What may fail, and why nothing is lost or doubled
=================================================
Task attempt dies, hangs or runs twice
    Its rows stay in staging. Only votes that reach the driver name attempts, and
    publishing moves the rows of those attempts only, checking their number.
Driver dies before COMMIT
    Offsets and results are those of the batch before. The next driver starts there.
Driver dies after COMMIT
    The next driver starts after the batch. Spark's view of it does not matter.
Answer to COMMIT is lost
    The outcome is unknown, never "failed". Publishing is called again; it queues for
    the row lock that the lost transaction holds until it ends, and then compares the
    offsets: ``ALREADY_COMMITTED`` is a success.
Driver dies while branches are prepared
    If their batch is undecided, no driver will ever decide it: the next driver, or the
    resolver, rolls the branches back once a newer claim exists. If it is decided, the
    next driver or the resolver commits them.
Postgres runs PREPARE TRANSACTION when its client is long dead
    The branch belongs to a superseded claim. The next sweep finds it; a sweep follows
    every batch.
A branch is gone
    That proves nothing. Its marker, a row of the same transaction, proves that it
    was committed; without the marker the pipeline stops.
A participant goes back in time, or the home does and a participant does not
    Before each batch the driver compares the newest marker of a branch with the newest
    decision of home. If they differ, it commits the decided branches and compares
    again, since the branch may be prepared while its marker is gone. If they still
    differ, the pipeline stops and says which batches only one side knows.
Server crashes
    UNLOGGED staging is empty afterwards. The number of moved rows differs from the
    votes, the transaction is rolled back, and the batch is staged again.
Database goes back in time (restore, lagging standby)
    Offsets, results, seen IDs and windows go back together. The running driver finds
    its claim or its offsets gone and stops; the next one reads Kafka from there.
A function on keyed state answers differently when it is called again
    Its input is what phase one staged and voted for, and the state of the newest
    published batch. Only the answers of the attempts that voted count.
Two drivers
    The one with the older epoch is fenced at its next publish.
A result table refuses a row
    The transaction is rolled back, bisection finds the rows, and the batch is staged
    again with these as dead letters, so that every aggregate is right. The driver then
    stages the next batch again too, if it was already staged behind this one.

Invariants
==========
::

    epoch never decreases                        only the newest epoch may publish
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
