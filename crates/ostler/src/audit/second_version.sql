-- The file as the second version made it. It does not change with the layout of today.
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
CREATE TABLE abouts (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    principal TEXT,
    role TEXT,
    session TEXT,
    server TEXT,
    action TEXT NOT NULL,
    subject TEXT,
    outcome TEXT NOT NULL,
    rule TEXT,
    delivery TEXT,
    generation INTEGER,
    count INTEGER,
    detail TEXT
);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    late INTEGER NOT NULL,
    about INTEGER NOT NULL,
    took INTEGER,
    arguments_hash,
    arguments TEXT
);
CREATE INDEX entries_late ON entries (late) WHERE late > 60000000;
CREATE VIEW events AS
    SELECT entries.id AS id, entries.id - late AS at, kind, principal, role, session, server, action, subject,
        outcome, rule, delivery, generation, took, count,
        CASE typeof(arguments_hash) WHEN 'blob' THEN lower(hex(arguments_hash)) ELSE arguments_hash END
            AS arguments_hash,
        arguments, detail
    FROM entries CROSS JOIN abouts ON abouts.id = entries.about;
PRAGMA user_version = 2;
