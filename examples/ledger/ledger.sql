-- What happened to accounts. A row is never changed: `version` numbers the events of one account, so of two commands that
-- decided by the same state one fails.
create table ledger_events (
    account text not null,
    version int not null,
    type text not null,
    amount numeric(20, 2) not null, -- what it adds to the balance
    transfer text,                  -- of the events of a transfer
    other text,                     -- the account at its other end
    at timestamptz not null default now(),
    primary key (account, version)
);

-- Who holds an account. These rows do change, and their history is the audit.
create table holders (account text primary key, name text not null, email text not null);
alter table holders replica identity full;
