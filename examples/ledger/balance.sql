select account, sum(amount) as balance, count(*) as events
  from ledger_events
 group by account
