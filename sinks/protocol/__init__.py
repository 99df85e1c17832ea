"""The batch protocol: how each event comes to count exactly once in effect.

Pure: standard library only, no I/O, no clock, no environment, no randomness. The
same code runs in production, on the fakes and in the model.

Authority
=========
Postgres is the only authority. One transaction of the home database holds a batch's
results, the next Kafka offsets, the IDs seen, the window state, the watermark, the
dead letters, the late events and a ledger row. It commits or it does not. Spark's
checkpoint, the executors' caches and the staging tables can be deleted at any moment
and are rebuilt.

A batch's life
==============
::

    driver                    tasks                      home database
    ------                    -----                      -------------
    claim_epoch ------------------------------------->   epoch_claim += epoch
    read_progress <-----------------------------------   offsets, watermark
    1 plan: Spark fixes half-open offset ranges
                              · planned
    2 stage ------------->    decode, validate, dedup,
                              enrich, aggregate
                              COPY, tagged by attempt ->  staging (UNLOGGED)
                              · rows_staged
            <-------------    vote: rows, counts
      tally the votes, check the conservation law
                              · voted
    3 publish ---------------------------------------->  lock the pipeline's row
                                                         newest epoch == own?
                                                         stored offsets == from?
                                                         move voted rows, merge
                                                         windows, ledger, offsets
                                                         COMMIT
                              · decision_committed
    4 seal: Spark writes its commit log; nobody reads it again
                              · sealed

The dotted names are the fault points of ``sinks.faultpoints``.

The fence
=========
A driver is identified by its epoch. Claiming one is an insert, so it never waits for
what a dead driver left locked. The claimer then locks the pipeline's row once: a
publish transaction under way has then ended, and each later one finds the claim. A
superseded driver learns it at its next publish, or when its staging tables are gone,
and stops; it must never claim again by itself, or two drivers would fence each other
for ever.

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
Server crashes
    UNLOGGED staging is empty afterwards. The number of moved rows differs from the
    votes, the transaction is rolled back, and the batch is staged again.
Database goes back in time (restore, lagging standby)
    Offsets, results, seen IDs and windows go back together. The running driver finds
    its claim or its offsets gone and stops; the next one reads Kafka from there.
Two drivers
    The one with the older epoch is fenced at its next publish.
A result table refuses a row
    The transaction is rolled back, bisection finds the rows, and the batch is staged
    again with these as dead letters, so that every aggregate is right.

Invariants
==========
::

    epoch never decreases                        newest epoch only may publish
    stored next_offset == from_offset            or the batch is not published
    read == committed + duplicate + dead + late + expired + filtered
    moved rows == voted rows                     per staging table
    watermark_after >= watermark_before
    sequence is dense per pipeline
"""
