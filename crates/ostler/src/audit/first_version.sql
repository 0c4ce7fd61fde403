-- The file as the first version made it. It does not change with the layout of today.
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
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
    took INTEGER,
    count INTEGER,
    arguments_hash TEXT,
    arguments TEXT,
    detail TEXT
);
CREATE INDEX IF NOT EXISTS events_at ON events (at);
PRAGMA user_version = 1;
